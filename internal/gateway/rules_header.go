package gateway

import (
	"maps"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// Limits of upstream_headers.
const (
	MaxUpstreamHeaders   = 16
	maxHeaderName        = 128
	maxUpstreamHeaderSet = 4 << 10 // bytes of all names and values
)

// MaxRequestHeaders is the most headers that CheckRequestHeaders allows.
const MaxRequestHeaders = 100

// Masked is shown in place of a secret value.
const Masked = "***"

// CheckUpstreamHeaders checks the headers that are set on every forwarded request. It
// rejects headers that frame the message, are hop-by-hop, or are set by Keygate. Errors are
// validation errors of "upstream_headers" or of a field of it.
func CheckUpstreamHeaders(h map[string]string) error { return checkHeaderSet("upstream_headers", h) }

// checkHeaderSet checks headers that are set, in the field of.
func checkHeaderSet(of string, h map[string]string) error {
	if len(h) > MaxUpstreamHeaders {
		return fault.Invalid(of, "must not have more than %d headers", MaxUpstreamHeaders)
	}
	problems := make([]error, 0, 2)
	if size := headerBytes(h); size > maxUpstreamHeaderSet {
		problems = append(problems, fault.Invalid(of, "must have at most %d bytes, all names and values together, not %d", maxUpstreamHeaderSet, size))
	}
	return fault.Join(append(problems, checkHeaders(of, h))...)
}

// CheckRequestHeaders checks the headers of a request that Keygate sends to a gateway on behalf of a user. It rejects
// what CheckUpstreamHeaders does, but allows more headers, of any length together. Errors are validation errors of
// field or of a field of it.
func CheckRequestHeaders(field string, h map[string]string) error {
	if len(h) > MaxRequestHeaders {
		return fault.Invalid(field, "must not have more than %d headers", MaxRequestHeaders)
	}
	return checkHeaders(field, h)
}

// checkHeaders checks the headers in the field of.
func checkHeaders(of string, h map[string]string) error {
	problems := make([]error, 0, len(h))
	seen := make(map[string]bool, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		// Upstreams that follow CGI treat "_" and "-" as the same character.
		folded := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		problems = append(problems, checkHeader(of, name, folded, h[name], seen[folded]))
		seen[folded] = true
	}
	return fault.Join(problems...)
}

func headerBytes(h map[string]string) (n int) {
	for name, value := range h {
		n += len(name) + len(value)
	}
	return n
}

// checkHeader checks one header in the field of. repeated is set if another header has the same folded
// name.
func checkHeader(of, name, folded, value string, repeated bool) error {
	if !isToken(name) || len(name) > maxHeaderName {
		return fault.Invalid(of, "%.40q is not a valid header name", name)
	}
	field := of + "." + name
	switch {
	case repeated:
		return fault.Invalid(field, "is a duplicate: names that differ only in case, or in - and _, are the same header")
	case isReservedHeader(folded):
		return fault.Invalid(field, "is reserved: it frames the message, or Keygate sets it")
	case value == Masked:
		return fault.Invalid(field, "*** only stands in for a hidden value: give the value itself")
	case !isHeaderValue(value):
		return fault.Invalid(field, "must have printable characters only, and no spaces at either end")
	default:
		return nil
	}
}

// isReservedHeader reports whether a header cannot be set; name is in lower case, with "-"
// for "_".
func isReservedHeader(name string) bool {
	switch name {
	case "host", "content-length", "transfer-encoding", // framing and routing
		"connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "http2-settings", "expect",
		"proxy-authenticate", "proxy-authorization", // hop by hop
		"via", "forwarded", "x-request-id", // written by Keygate
		"ratelimit", "ratelimit-policy":
		return true
	}
	return beginsWith(name, "x-keygate-", "x-forwarded-", "x-ratelimit-", "sec-websocket-")
}

// beginsWith reports whether name begins with one of the prefixes.
func beginsWith(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// isToken reports whether s is a token (RFC 9110, 5.6.2): the syntax of header names and
// methods.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
			strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

func isHeaderValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return strings.Trim(s, " \t") == s
}
