package nethttp

import (
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/snapshot"
)

// ownFields sets the fields that every answer carries: the request's
// identifier and what the verdict tells. It replaces what is there.
func (x *exchange) ownFields() {
	h := x.w.Header()
	h["X-Request-Id"] = []string{x.id}
	if x.verdict.Gateway == nil && x.verdict.Code == "" {
		return // nothing was decided
	}
	var scratch [512]byte
	x.verdict.EachField(scratch[:], func(name string, value []byte) {
		if name == "Vary" {
			h.Add(name, string(value))
			return
		}
		h.Del(name)
		h[name] = []string{string(value)} // in the spelling of its specification
	})
}

// requestFields returns the fields that the upstream gets, less those of an
// upgrade (contract, 4.2, end).
func (x *exchange) requestFields() http.Header {
	r := x.r
	out := make(http.Header, len(r.Header)+10)
	named := connectionNames(r.Header)
	set := x.verdict.Gateway.Upstream.Headers
	trusted := x.trusted()
	for name, values := range r.Header {
		if hopByHop(name) || named[name] && name != "Via" || notForUpstream(name) || !trusted && forwarded(name) || isSet(set, name) {
			continue
		}
		out[name] = values
	}
	if x.isKey(out.Get("Authorization")) {
		delete(out, "Authorization")
	}
	if wantsTrailers(r.Header) {
		out["Te"] = []string{"trailers"}
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = []string{""} // or net/http would send its own
	}
	out["X-Request-Id"] = []string{x.id}
	x.forwardedFields(out)
	out["Via"] = append(out["Via"][:len(out["Via"]):len(out["Via"])], x.via())
	out["X-Keygate-Gateway-Id"] = []string{x.verdict.Gateway.ID}
	if k := x.verdict.Key; k != nil {
		out["X-Keygate-Key-Id"] = []string{k.ID()}
		if owner := k.Owner(); owner != "" {
			out["X-Keygate-Key-Owner"] = []string{owner}
		}
	}
	x.traceField(out)
	for _, f := range set {
		out.Set(f.Name, f.Value)
	}
	return out
}

// isSet reports whether a field is one that the gateway sets itself. "_" counts
// as "-".
func isSet(set []snapshot.Header, name string) bool {
	return slices.ContainsFunc(set, func(f snapshot.Header) bool {
		return len(f.Name) == len(name) && same(name, strings.ReplaceAll(strings.ToLower(f.Name), "_", "-"))
	})
}

// forwardedFields sets the fields that tell of the client. What a trusted proxy
// has set of them is in out and stays.
func (x *exchange) forwardedFields(out http.Header) {
	if client, _, err := net.SplitHostPort(x.r.RemoteAddr); err == nil {
		out["X-Forwarded-For"] = []string{strings.Join(append(slices.Clone(out["X-Forwarded-For"]), client), ", ")}
	}
	if len(out["X-Forwarded-Host"]) == 0 {
		out["X-Forwarded-Host"] = []string{x.r.Host}
	}
	if len(out["X-Forwarded-Proto"]) == 0 {
		out["X-Forwarded-Proto"] = []string{"http"}
		if x.r.TLS != nil {
			out["X-Forwarded-Proto"] = []string{"https"}
		}
	}
}

// via names this hop by the version of HTTP in which the request came.
func (x *exchange) via() string {
	return strconv.Itoa(x.r.ProtoMajor) + "." + strconv.Itoa(x.r.ProtoMinor) + " " + x.server.cfg.Via
}

// looped reports whether the request has come through this instance before.
func (x *exchange) looped() bool {
	for _, value := range x.r.Header["Via"] {
		for hop := range strings.SplitSeq(value, ",") {
			if words := strings.Fields(hop); len(words) > 1 && words[1] == x.server.cfg.Via {
				return true
			}
		}
	}
	return false
}

// isKey reports whether an Authorization value is, or was meant to be, a key of
// ours: Bearer where a key is asked for, and on public routes Bearer with what
// looks like one. Whatever else a caller tells the upstream there is its own.
func (x *exchange) isKey(authorization string) bool {
	scheme, credential := authorization, ""
	if i := strings.IndexAny(authorization, " \t"); i >= 0 {
		scheme, credential = authorization[:i], strings.TrimLeft(authorization[i:], " \t")
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	_, isKey := apikey.LevelOf(credential)
	return x.verdict.Key != nil || isKey || strings.HasPrefix(credential, "kg_") || strings.HasPrefix(credential, "kga_")
}

// answerFields copies the fields of an upstream's answer, less those of its
// connection and those whose names are ours, which ownFields sets.
func answerFields(to, from http.Header) {
	named := connectionNames(from)
	for name, values := range from {
		if hopByHop(name) || named[name] && name != "Content-Length" || ownAnswerName(name) {
			continue
		}
		to[name] = values
	}
	if _, ok := to["Content-Type"]; !ok {
		to["Content-Type"] = nil // or net/http would guess one
	}
}

// connectionNames returns the names that the field Connection lists.
func connectionNames(h http.Header) map[string]bool {
	var names map[string]bool
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			if name = textproto.TrimString(name); name != "" {
				if names == nil {
					names = make(map[string]bool, 4)
				}
				names[textproto.CanonicalMIMEHeaderKey(name)] = true
			}
		}
	}
	return names
}

// hopByHop reports whether a field belongs to one connection alone.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings":
		return true
	}
	return false
}

// notForUpstream reports whether a caller's field must not reach the upstream:
// it is ours to set, or of the message's frame. "_" counts as "-", since many
// servers read both as one.
func notForUpstream(name string) bool {
	switch {
	case name == "Host", name == "Content-Length":
		return true
	case same(name, "x-request-id"):
		return true
	default:
		return begins(name, "x-keygate-")
	}
}

// forwarded reports whether a field tells of the client, which only a trusted
// proxy may do.
func forwarded(name string) bool {
	return same(name, "forwarded") || begins(name, "x-forwarded-")
}

// ownAnswerName reports whether a field of an answer is the gateway's to set.
func ownAnswerName(name string) bool {
	switch name {
	case "X-Request-Id", "Ratelimit", "Ratelimit-Policy":
		return true
	}
	return begins(name, "x-ratelimit-")
}

// begins reports whether name begins with prefix, which is in lower case;
// letter case does not matter, and "_" counts as "-".
func begins(name, prefix string) bool {
	if len(name) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		c := name[i]
		switch {
		case c == '_':
			c = '-'
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		if c != prefix[i] {
			return false
		}
	}
	return true
}

func same(name, want string) bool { return len(name) == len(want) && begins(name, want) }

// wantsTrailers reports whether the client said that it takes trailers.
func wantsTrailers(h http.Header) bool {
	return httpguts.HeaderValuesContainsToken(h["Te"], "trailers")
}
