package proxy

import (
	"unsafe"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/cookie"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/snapshot"
)

// Fields is a set of header fields, one bit for each http1.Name.
type Fields uint64

// Has reports whether the set holds a field.
func (s Fields) Has(n http1.Name) bool { return s>>n&1 != 0 }

// NameOf returns the http1.Name of a field name in any letter case.
func NameOf(name string) http1.Name {
	return http1.NameOf(unsafe.Slice(unsafe.StringData(name), len(name))) //nolint:gosec // it only reads
}

// where lists the parts of messages in which a field is not forwarded.
type where uint8

const (
	inRequest   where = 1 << iota // in the head of a request
	inUntrusted                   // in the head of a request, unless a trusted proxy sent it
	inResponse                    // in the head of a response
	inTrailer                     // in the trailers of either

	everywhere = inRequest | inResponse | inTrailer
)

// dropped is the table of the fields that are not forwarded (contract, 4.2, end, and 4.4).
// Connection and framing fields are generated for each hop. A field that the gateway sets
// replaces the client's or upstream's field of that name, where http1.NameOf treats "_" as
// "-". Every other field is forwarded.
var dropped = [...]where{ //nolint:gochecknoglobals // a table that is never written
	http1.Connection:         everywhere,
	http1.ProxyConnection:    everywhere,
	http1.KeepAlive:          everywhere,
	http1.ProxyAuthenticate:  everywhere,
	http1.ProxyAuthorization: everywhere,
	http1.TE:                 everywhere,
	http1.Trailer:            everywhere,
	http1.TransferEncoding:   everywhere,
	http1.Upgrade:            everywhere,
	http1.HTTP2Settings:      everywhere,

	http1.Host:          inRequest | inTrailer,
	http1.ContentLength: inRequest | inTrailer, // see also ResponseDrop
	http1.Authorization: inTrailer,             // see also IsKey
	http1.Expect:        inTrailer,
	http1.Via:           inTrailer,

	http1.XRequestID: everywhere,
	http1.XKeygate:   inRequest | inTrailer,
	http1.RateLimit:  inResponse | inTrailer,
	http1.AltSvc:     inResponse | inTrailer, // it would lead clients past the gateway
	http1.SetCookie:  inTrailer,              // see also cookie.SetsSession

	http1.Forwarded:       inUntrusted | inTrailer,
	http1.XForwardedFor:   inRequest | inTrailer, // AppendForwardedFor generates it
	http1.XForwardedHost:  inUntrusted | inTrailer,
	http1.XForwardedProto: inUntrusted | inTrailer,
	http1.XForwarded:      inUntrusted | inTrailer,
	http1.ClientAddress:   inUntrusted | inTrailer,

	http1.Lookalike: inRequest | inTrailer, // some upstreams take it for the field that frames the body
}

//nolint:gochecknoglobals // the columns of the table as sets
var (
	droppedInRequest   = column(inRequest)
	droppedInUntrusted = column(inRequest | inUntrusted)
	droppedInResponse  = column(inResponse)
	droppedInTrailer   = column(inTrailer)
)

func column(w where) (s Fields) {
	for n, parts := range dropped {
		if parts&w != 0 {
			s |= 1 << n
		}
	}
	return s
}

// Unnameable are the fields that Connection cannot remove by naming them.
const Unnameable Fields = 1<<http1.Via | 1<<http1.Host | 1<<http1.ContentLength

// RequestDrop returns the fields of a request's head that are not forwarded to the
// upstream. trusted is set if a trusted proxy sent the request, and traced if the gateway
// writes Traceparent itself.
func RequestDrop(trusted, traced bool) Fields {
	drop := droppedInUntrusted
	if trusted {
		drop = droppedInRequest
	}
	if traced {
		drop |= 1 << http1.Traceparent
	}
	return drop
}

// ResponseDrop returns the fields of a response's head that are not forwarded to the
// client. cors is set if the gateway writes Access-Control-Allow-Origin itself.
func ResponseDrop(status int, cors bool) Fields {
	drop := droppedInResponse
	if status < 200 || status == 204 {
		drop |= 1 << http1.ContentLength // RFC 9110, 8.6
	}
	if cors {
		drop |= 1 << http1.AllowOrigin
	}
	return drop
}

// MayTrail reports whether a field may be forwarded in the trailers of a request or
// response (contract, 4.4). Fields about framing, routing, authentication or the use of a response
// may not, because these are settled before the body, nor may fields that the gateway sets.
func MayTrail(name string, id http1.Name, response bool) bool {
	if droppedInTrailer.Has(id) {
		return false
	}
	var room [32]byte
	lower := append(room[:0], name[:min(len(name), len(room))]...)
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c | 0x20
		}
	}
	switch string(lower) {
	case "content-encoding", "content-range", "content-type", "max-forwards", "location",
		"www-authenticate", "authentication-info", "proxy-authentication-info", "cookie", "set-cookie":
		return false
	case "access-control-allow-origin", "retry-after", "cache-control", "age", "date", "vary":
		return !response
	}
	return true
}

// Withheld is a set of fields that are not passed on, by their names: "_" is treated as "-". The zero value is empty.
type Withheld struct {
	Names []string
	Edits *snapshot.Edits // whose names are in the set too; nil for none
}

// Hidden returns the fields of the upstream's response that the client does not get.
func Hidden(v *admit.Verdict) Withheld { return Withheld{v.Cost.Hidden(), v.ResponseEdits()} }

// IsEmpty reports whether the set has no fields.
func (w Withheld) IsEmpty() bool { return len(w.Names) == 0 && w.Edits == nil }

// Has reports whether the set has a field.
func (w Withheld) Has(name string) bool {
	return IsWithheld(w.Names, name) || w.Edits != nil && w.edited(name)
}

func (w Withheld) edited(name string) bool {
	for names := range w.Edits.Names {
		if IsWithheld(names, name) {
			return true
		}
	}
	return false
}

// EachSetOnResponse calls yield with each header that the gateway and the route set on the upstream's response. value is valid until
// yield returns.
func EachSetOnResponse(v *admit.Verdict, requestID string, yield func(name, value string)) {
	e := v.ResponseEdits()
	if e == nil {
		return
	}
	v.EachHeader(e, requestID, func(name, value string) {
		if v.AllowOrigin != "" && NameOf(name) == http1.AllowOrigin {
			return // the gateway itself says it, by cors
		}
		if NameOf(name) == http1.SetCookie && cookie.SetsSession(value) {
			return // by a variable: an owner or subject of that name
		}
		yield(name, value)
	})
}

// IsWithheld reports whether a client's field of that name must be dropped, because the
// gateway sets it itself (upstream_headers) or it may hold the key (key_headers). withheld
// is Target.Withheld. "_" is treated as "-".
func IsWithheld(withheld []string, name string) bool {
	for i := range withheld {
		if len(withheld[i]) == len(name) && sameName(withheld[i], name) {
			return true
		}
	}
	return false
}

func sameName(a, b string) bool {
	for i := range len(b) {
		if fold(b[i]) != fold(a[i]) {
			return false
		}
	}
	return true
}

func fold(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	case c == '_':
		return '-'
	}
	return c
}
