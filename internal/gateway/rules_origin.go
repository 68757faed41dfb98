package gateway

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/keygate/keygate/internal/document"
)

// Normal returns the settings with their origins as browsers send them, so that they can be compared
// byte by byte. A value that is not an origin stays as it is; Validate reports it.
func (c CORS) Normal() CORS {
	c.Origins = slices.Clone(c.Origins)
	for i, o := range c.Origins {
		if normal, problem := parseOrigin(o); problem == "" {
			c.Origins[i] = normal
		}
	}
	return c
}

// parseOrigin returns an origin in the form in which browsers send it (URL Standard, "serialization of
// an origin"): in lower case, without the scheme's default port, with a name of other letters in
// punycode, and with an address in its canonical form. problem says why browsers never send s; it is ""
// if they do. "*" stands for all origins.
func parseOrigin(s string) (normal, problem string) {
	if s == "*" {
		return s, ""
	}
	const form = `must be an origin such as https://app.example.com, or "*"`
	scheme, _, ok := strings.Cut(s, "://")
	u, err := url.Parse(s)
	switch {
	case s == "null":
		return "", form + ": null is the origin of every sandboxed page and local file, so it is not accepted"
	case !ok && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:") == "" && strings.Contains(s, "."):
		return "", form + ": write the scheme too, as in https://" + document.Short(s)
	case !ok || err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(s, " ,?#%"):
		return "", form + hint(document.Lookalike(s))
	case strings.Contains(s, "*"):
		return "", form + ": a * stands for all origins alone: list each origin"
	case scheme+"://"+u.Host != s:
		return "", form + ": an origin has no path, and no slash at its end"
	}
	scheme = strings.ToLower(scheme)
	if scheme == "ws" || scheme == "wss" {
		return "", form + ": pages have the scheme http or https, also those that open a WebSocket"
	}
	host, problem := originHost(u.Hostname())
	if problem != "" {
		return "", form + ": " + problem
	}
	if port := u.Port(); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return "", form + ": the port must be between 0 and 65535"
		}
		if port = strconv.FormatUint(n, 10); port != (map[string]string{"http": "80", "https": "443"})[scheme] {
			host += ":" + port
		}
	}
	return scheme + "://" + host, ""
}

func hint(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// originHost returns a host as browsers send it.
func originHost(s string) (host, problem string) {
	if a, err := netip.ParseAddr(s); err == nil {
		switch {
		case a.Zone() != "":
			return "", "an address has no zone"
		case a.Is6():
			return "[" + a.String() + "]", ""
		}
		return a.String(), ""
	}
	host = strings.ToLower(s)
	if strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
		var err error
		if host, err = browserNames().ToASCII(s); err != nil {
			return "", "the host is not a valid name" + hint(document.Lookalike(s))
		}
	}
	switch {
	case isAddress(strings.TrimSuffix(host, ".")):
		return "", "browsers write an IPv4 address as four numbers, as in 192.0.2.1"
	case host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || strings.ContainsRune("\"<>[]\\^`{|}/@", r) }):
		return "", "the host is not a valid name"
	}
	return host, ""
}

// browserNames is how browsers write names in other letters (URL Standard, "domain to ASCII").
func browserNames() *idna.Profile {
	return idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(), idna.StrictDomainName(false))
}
