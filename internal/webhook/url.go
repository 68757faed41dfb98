package webhook

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// maxURL is the number of bytes that an endpoint's URL may have.
const maxURL = 2048

// URLRule says which URLs endpoints may have. Where the host is, is decided
// anew whenever a sender connects; this is what can be told beforehand.
type URLRule struct {
	// AllowHTTP allows plain http to public addresses (--webhook-allow-http).
	AllowHTTP bool
	// Allow are the networks in which plain http is allowed
	// (--webhook-allow-network).
	Allow []netip.Prefix
}

// Check checks the URL of an endpoint: https, or http where a setting allows
// it, with a host, without userinfo and fragment. The error is a validation
// error of the field "url".
func (r URLRule) Check(s string) error {
	if s == "" {
		return badURL("is required: the address that receives the deliveries, as in https://example.com/hooks")
	}
	if len(s) > maxURL {
		return badURL("must have at most 2048 characters")
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || strings.ContainsFunc(s, notInURL) {
		return badURL("must be a URL, as in https://example.com/hooks")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return badURL("must begin with https://")
	case u.User != nil:
		return badURL("may hold no user or password: check the signature of what you receive instead")
	case strings.Contains(s, "#"):
		return badURL("may hold no fragment")
	case !isHost(u.Hostname()):
		return badURL("must name a host: a DNS name or an IP address")
	case !isPort(u.Port()) || strings.HasSuffix(u.Host, ":"):
		return badURL("must have a port from 1 to 65535, or none")
	case u.Scheme == "http" && !r.mayBePlain(u.Hostname()):
		return badURL("must begin with https://: plain http is taken where --webhook-allow-network names the receiver's network, and at public addresses with --webhook-allow-http")
	}
	return nil
}

// mayBePlain reports whether some address of host could be reached by plain
// http.
func (r URLRule) mayBePlain(host string) bool {
	if r.AllowHTTP {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return len(r.Allow) > 0
	}
	return slices.ContainsFunc(r.Allow, func(n netip.Prefix) bool { return n.Contains(addr.Unmap()) })
}

func badURL(message string) error { return fault.Invalid("url", "%s", message) }

// notInURL reports the characters that net/url passes and a request line does
// not.
func notInURL(r rune) bool { return r <= 0x20 || r >= 0x7f || strings.ContainsRune(`\"<>^`+"`{|}", r) }

// isPort reports whether s is "" or a port's number.
func isPort(s string) bool {
	if s == "" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '0'
}

// isHost reports whether s can be resolved or is an address. Names are not held
// to the letter, since the resolvers of private networks are not either.
func isHost(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == ""
	}
	name := strings.TrimSuffix(s, ".")
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, notInLabel) {
			return false
		}
	}
	return true
}

func notInLabel(r rune) bool {
	return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}
