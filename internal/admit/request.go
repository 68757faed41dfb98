package admit

import "net/netip"

// Request is the part of a request's head that a decision needs, as received. Its strings
// are not used beyond the life of the Verdict.
type Request struct {
	Method string
	// Target is the request target, byte for byte: origin form, absolute form (whose
	// authority takes precedence over Host), or "*".
	Target string
	// Host is the Host header or :authority.
	Host string
	// Authorization is the first Authorization header, and Authorizations the number of
	// them.
	Authorization  string
	Authorizations int
	// Header reads the other headers. It is used only for a gateway with key_headers of its
	// own, and to record where a request that is refused has its key. It may be nil for other gateways.
	Header Header
	// Length is the declared length of the body in bytes: 0 without a body, and negative if it is not known.
	Length int64
	// Bound is the name of the upstream to which the client's connection is bound, because it has authenticated itself there; "" for
	// none.
	Bound string
	// Client is the client's address, as limits for each address count it.
	Client netip.Addr
	// Origin and PreflightMethod are the headers Origin and Access-Control-Request-Method,
	// "" if absent.
	Origin          string
	PreflightMethod string
}

// Header reads the headers of a request.
type Header interface {
	// HeaderValue returns the first value of a header, whose name is matched ignoring case,
	// and how many there are.
	HeaderValue(name string) (value string, count int)
}
