package webhook

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// maxURL is the maximum length of an endpoint's URL in bytes.
const maxURL = 2048

// URLRule decides which URLs endpoints may have. It checks only what is known before
// connecting; the sender checks the host's address on every connection.
type URLRule struct {
	// AllowHTTP allows plain http to public addresses (--webhook-allow-http).
	AllowHTTP bool
	// Allow are the networks in which plain http is allowed
	// (--webhook-allow-network).
	Allow []netip.Prefix
}

// Check checks the URL of an endpoint. The URL needs a host, must use https (or http if a
// setting allows it), and must have neither userinfo nor a fragment. The error is a
// validation error of the field "url".
func (r URLRule) Check(s string) error {
	if s == "" {
		return badURL("is required: give the URL that receives the deliveries, such as https://example.com/hooks")
	}
	if len(s) > maxURL {
		return badURL("must have at most 2048 characters")
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || strings.ContainsFunc(s, notInURL) {
		return badURL("must be a URL such as https://example.com/hooks")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return badURL("must start with https://")
	case u.User != nil:
		return badURL("must not contain a user or password: check the signature of the requests instead")
	case strings.Contains(s, "#"):
		return badURL("must not contain a fragment")
	case !isHost(u.Hostname()):
		return badURL("must have a host: a DNS name or an IP address")
	case !isPort(u.Port()) || strings.HasSuffix(u.Host, ":"):
		return badURL("must have a port between 1 and 65535, or none")
	case u.Scheme == "http" && !r.mayBePlain(u.Hostname()):
		return badURL("must start with https://: plain http is allowed only in the networks of --webhook-allow-network, and at public addresses with --webhook-allow-http")
	}
	return nil
}

// mayBePlain reports whether plain http could be allowed for an address of host.
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

// notInURL reports whether net/url accepts r although it is not allowed in a request line.
func notInURL(r rune) bool { return r <= 0x20 || r >= 0x7f || strings.ContainsRune(`\"<>^`+"`{|}", r) }

// isPort reports whether s is a port number or "".
func isPort(s string) bool {
	if s == "" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '0'
}

// isHost reports whether s is an IP address or looks like a DNS name. It allows more than
// the DNS standards, because the resolvers of private networks do too.
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
