package gateway

import (
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// Limits of upstream_headers.
const (
	MaxUpstreamHeaders = 16
	maxHeaderName      = 128
	maxHeaderValue     = 8192
)

// Masked stands for a secret value wherever one would be shown.
const Masked = "***"

// CheckUpstreamHeaders checks the fields that are set on every forwarded
// request. A field that frames the message, belongs to one connection, or is
// written by Keygate itself is refused. Errors are validation errors of
// "upstream_headers" or of a member of it.
func CheckUpstreamHeaders(h map[string]string) error {
	if len(h) > MaxUpstreamHeaders {
		return fault.Invalid("upstream_headers", "may hold at most %d fields", MaxUpstreamHeaders)
	}
	seen := make(map[string]bool, len(h))
	for name, value := range h {
		if !isToken(name) || len(name) > maxHeaderName {
			return fault.Invalid("upstream_headers", "%.40q is no name of a header field", name)
		}
		field := "upstream_headers." + name
		// Upstreams of the CGI tradition see "_" and "-" as one.
		folded := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		if seen[folded] {
			return fault.Invalid(field, "stands twice: names differ in more than case, hyphens and underscores")
		}
		seen[folded] = true
		if isReservedHeader(folded) {
			return fault.Invalid(field, "cannot be set: it frames the message, or Keygate writes it")
		}
		if value == Masked {
			return fault.Invalid(field, "*** is what stands in place of a value that is not shown: give the value itself")
		}
		if len(value) > maxHeaderValue || !isHeaderValue(value) {
			return fault.Invalid(field, "must have at most %d printable characters, without spaces at the ends", maxHeaderValue)
		}
	}
	return nil
}

// isReservedHeader takes the name in lower case with "_" as "-".
func isReservedHeader(name string) bool {
	switch name {
	case "host", "content-length", "transfer-encoding", // framing and routing
		"connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "http2-settings", "expect",
		"proxy-authenticate", "proxy-authorization", // hop by hop
		"via", "forwarded", "x-request-id", // written by Keygate
		"ratelimit", "ratelimit-policy":
		return true
	}
	for _, prefix := range []string{"x-keygate-", "x-forwarded-", "x-ratelimit-", "sec-websocket-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// isToken reports whether s is a token (RFC 9110, 5.6.2), as the names of
// header fields and methods are.
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
