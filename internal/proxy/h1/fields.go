package h1

import (
	"bytes"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/snapshot"
)

// nameSet is a set of names, by bits.
type nameSet uint64

func (s nameSet) has(n http1.Name) bool { return s>>n&1 != 0 }

// hopByHop are the fields of one connection alone, and those of its framing,
// which is written anew.
const hopByHop nameSet = 1<<http1.Connection | 1<<http1.ProxyConnection | 1<<http1.KeepAlive | 1<<http1.ProxyAuthenticate |
	1<<http1.ProxyAuthorization | 1<<http1.TE | 1<<http1.Trailer | 1<<http1.TransferEncoding | 1<<http1.Upgrade | 1<<http1.HTTP2Settings

// notForUpstream are the fields of a request that are ours to set, or of the
// message's frame. "_" counts as "-" in those that are ours, since many servers
// read both as one.
const notForUpstream = hopByHop | 1<<http1.Host | 1<<http1.ContentLength | 1<<http1.XRequestID | 1<<http1.XKeygate

// forwarded are the fields that only a trusted proxy may send.
const forwarded nameSet = 1<<http1.Forwarded | 1<<http1.XForwardedFor | 1<<http1.XForwardedHost | 1<<http1.XForwardedProto | 1<<http1.XForwarded

// notForClient are the fields of an answer that are ours to set, or of the
// connection.
const notForClient = hopByHop | 1<<http1.XRequestID | 1<<http1.RateLimit

// protected are the fields that Connection cannot have removed.
const protected nameSet = 1<<http1.Via | 1<<http1.Host | 1<<http1.ContentLength

// runs copies the fields of a head that stay, in runs of untouched bytes.
type runs struct {
	dst  []byte
	buf  []byte
	from int // where the current run begins, -1 without one
}

// keep takes the next field, whose line begins at start, into the current run.
func (r *runs) keep(start uint32) {
	if r.from < 0 {
		r.from = int(start)
	}
}

// cut ends the current run before the line that begins at start.
func (r *runs) cut(start uint32) {
	if r.from >= 0 {
		r.dst = append(r.dst, r.buf[r.from:start]...)
		r.from = -1
	}
}

// namedByConnection reports whether Connection lists the field f.
func namedByConnection(buf []byte, fields []http1.Field, f *http1.Field) bool {
	if protected.has(f.ID) {
		return false
	}
	name := f.Name.Of(buf)
	for i := range fields {
		if fields[i].ID != http1.Connection {
			continue
		}
		for rest, more := fields[i].Value.Of(buf), true; more; {
			var option []byte
			option, rest, more = bytes.Cut(rest, []byte(","))
			if option = bytes.Trim(option, " \t"); len(option) == len(name) && bytes.EqualFold(option, name) {
				return true
			}
		}
	}
	return false
}

// notInTrailer reports whether a field means nothing good behind a body: fields
// of framing, routing and authentication, and ours (contract, 4.4).
func notInTrailer(name []byte, id http1.Name, answer bool) bool {
	const both = hopByHop | notForUpstream | notForClient | forwarded | 1<<http1.Authorization | 1<<http1.Expect | 1<<http1.Via
	if both.has(id) {
		return true
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
		return true
	case "access-control-allow-origin", "retry-after", "cache-control", "age", "date", "vary":
		return answer // they direct how the answer is used, which was decided by then
	}
	return false
}

// appendTrailers appends the lines of a trailer section that may pass. set is the
// fields that the gateway sets itself: no caller may say them again.
func appendTrailers(dst, section []byte, fields []http1.Field, answer bool, set []snapshot.Header) []byte {
	for i := range fields {
		f := &fields[i]
		if name := f.Name.Of(section); !notInTrailer(name, f.ID, answer) && !isSet(set, name) {
			dst = append(append(dst, name...), ": "...)
			dst = append(append(dst, f.Value.Of(section)...), "\r\n"...)
		}
	}
	return dst
}

// appendAnnouncement appends the field Trailer with the names in those of a head
// that may pass, if there are any.
func appendAnnouncement(dst, buf []byte, fields []http1.Field, answer bool, set []snapshot.Header) []byte {
	begun := false
	for i := range fields {
		if fields[i].ID != http1.Trailer {
			continue
		}
		http1.EachElement(fields[i].Value.Of(buf), func(name []byte) bool {
			if !http1.IsToken(name) || notInTrailer(name, http1.NameOf(name), answer) || isSet(set, name) {
				return true
			}
			if begun {
				dst = append(dst, ", "...)
			} else {
				dst, begun = append(dst, "Trailer: "...), true
			}
			dst = append(dst, name...)
			return true
		})
	}
	if begun {
		dst = append(dst, "\r\n"...)
	}
	return dst
}
