package gateway

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// maxUpstreamURL is the number of bytes that an upstream URL may have.
const maxUpstreamURL = 2048

// UpstreamURL is the parsed base URL of an upstream service.
type UpstreamURL struct {
	Scheme string // http, https or h2c
	Host   string // lower case, without port; an IPv6 address without brackets
	Port   string // decimal; the scheme's own if none was given
	Path   string // as written, percent-encoding included
}

// Origin returns the scheme, host and port. Secrets that were given for one
// origin are not sent to another.
func (u UpstreamURL) Origin() string {
	return u.Scheme + "://" + net.JoinHostPort(u.Host, u.Port)
}

// ParseUpstreamURL reads the base URL of an upstream service: http, https or
// h2c, a host, perhaps a port and a path; no userinfo, query or fragment
// (contract, 3.3). The error is a validation error of the field
// "upstream_url".
func ParseUpstreamURL(s string) (UpstreamURL, error) {
	if len(s) > maxUpstreamURL {
		return UpstreamURL{}, badUpstream("must have at most 2048 characters")
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || strings.ContainsFunc(s, notInURL) {
		return UpstreamURL{}, badUpstream("must be a URL, as in https://orders.internal/base")
	}
	up := UpstreamURL{Scheme: u.Scheme, Host: strings.ToLower(u.Hostname()), Port: u.Port(), Path: u.EscapedPath()}
	switch up.Scheme {
	case "http", "h2c":
		up.Port = orDefault(up.Port, "80")
	case "https":
		up.Port = orDefault(up.Port, "443")
	default:
		return UpstreamURL{}, badUpstream("must begin with http://, https:// or h2c://")
	}
	switch {
	case u.User != nil:
		return UpstreamURL{}, badUpstream("may hold no user or password: use upstream_headers")
	case u.RawQuery != "" || u.ForceQuery:
		return UpstreamURL{}, badUpstream("may hold no query")
	case strings.Contains(s, "#"):
		return UpstreamURL{}, badUpstream("may hold no fragment")
	case !isUpstreamHost(up.Host):
		return UpstreamURL{}, badUpstream("must name a host: a DNS name or an IP address")
	case !isPort(up.Port) || strings.HasSuffix(u.Host, ":"):
		return UpstreamURL{}, badUpstream("must have a port from 1 to 65535, or none")
	case !isBasePath(up.Path):
		return UpstreamURL{}, badUpstream("has a path that a request line cannot hold: leave out dot segments, empty segments and encoded slashes")
	}
	return up, nil
}

// notInURL reports the characters that net/url passes in a path and a request
// line does not.
func notInURL(r rune) bool { return r <= 0x20 || r >= 0x7f || strings.ContainsRune(`\"<>^`+"`{|}", r) }

func badUpstream(message string) error { return fault.Invalid("upstream_url", "%s", message) }

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '0'
}

// isUpstreamHost allows what resolvers of private networks do: a name with
// underscores, or one with a final dot, beside addresses without a zone.
func isUpstreamHost(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == ""
	}
	return isDNSName(strings.ReplaceAll(strings.TrimSuffix(s, "."), "_", "x"))
}

// isBasePath reports whether every request path joined to p still means one
// thing to every server: what the data plane refuses in a request (contract,
// 4.5) may not come in from here.
func isBasePath(p string) bool {
	lower := strings.ToLower(p)
	if strings.Contains(p, "//") || strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c") {
		return false
	}
	for segment := range strings.SplitSeq(lower, "/") {
		plain := strings.ReplaceAll(segment, "%2e", ".")
		if plain == "." || plain == ".." {
			return false
		}
	}
	decoded, err := url.PathUnescape(p)
	return err == nil && !strings.ContainsFunc(decoded, func(r rune) bool { return r < 0x20 || r == 0x7f })
}
