package gateway

import (
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/label"
	"github.com/keygate/keygate/internal/ratelimit"
)

// CheckName checks a display name. The error is a validation error of the field "name".
func CheckName(name string) error {
	if err := label.CheckName("name", name); err != nil {
		return err
	}
	if strings.Contains(name, document.EnvMark) {
		return fault.Invalid("name", "%s", envForbidden)
	}
	return nil
}

// envForbidden is the error for a name or path that contains ${env:. An exported
// configuration file would contain it too, and whoever applies that file would publish a
// variable of their machine as the name or path.
const envForbidden = "must not contain ${env:, which configuration files replace by an environment variable: choose another text"

// CheckTimeout checks the timeout for the upstream's response header: a Go duration from
// 1s to 1h. The error is a validation error of the field "timeout".
func CheckTimeout(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d > time.Hour {
		return fault.Invalid("timeout", "must be a duration between 1s and 1h, such as 30s or 1m30s")
	}
	return nil
}

// CheckMaxBodyBytes checks the size of the largest request body that is forwarded.
// The error is a validation error of the field "max_body_bytes".
func CheckMaxBodyBytes(n int64) error {
	if n < 1 {
		return fault.Invalid("max_body_bytes", "must be at least 1, or null for no limit")
	}
	return nil
}

// CheckGlobalLimit checks the limit of a whole gateway, which has a sustained rate and
// optionally a burst. Errors name the field below the limit.
func CheckGlobalLimit(c ratelimit.Config) error {
	var sustained, daily, per error
	if c.Sustained.IsZero() {
		sustained = fault.Invalid("sustained", "is required: give a rate such as 6000/min")
	}
	if !c.Daily.IsZero() {
		daily = fault.Invalid("daily", "is not supported for a whole gateway: set the daily cap on routes")
	}
	if c.Per != "" {
		per = fault.Invalid("per", "is not supported for a whole gateway, whose limit all callers share: set per on routes, or rate_limit on keys")
	}
	return fault.Join(daily, per, sustained)
}

// CheckAnonymousLimit checks the limit of each client address on public routes, which has a sustained rate and
// optionally a burst. Errors name the field below the limit.
func CheckAnonymousLimit(c ratelimit.Config) error {
	var sustained, daily, per error
	if c.Sustained.IsZero() {
		sustained = fault.Invalid("sustained", "is required: give a rate such as 60/min")
	}
	if !c.Daily.IsZero() {
		daily = fault.Invalid("daily", "is not supported here, because addresses are not counted for days: leave it out")
	}
	if c.Per != "" {
		per = fault.Invalid("per", "is not supported here: this limit always counts each address")
	}
	return fault.Join(daily, per, sustained)
}

// DefaultHostname returns the hostname of a gateway that was given none: its identifier, with "-"
// for "_", under the gateway domain (contract, 4.1).
func DefaultHostname(gatewayID, domain string) string {
	return strings.ReplaceAll(gatewayID, "_", "-") + "." + strings.ToLower(domain)
}

// ParseHostname validates a hostname for a gateway and returns it in lower case. IP
// addresses, localhost, the gateway domain and names that begin with gw- under it are not
// allowed (contract, 4.1): the server generates the latter. The error is a validation error of the field "hostname".
func ParseHostname(s, domain string) (string, error) {
	// The letters are checked before they are lower-cased, which turns the Kelvin sign into a k.
	if strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return "", fault.Invalid("hostname", "must consist of ASCII letters, digits, - and .: write a name in other letters in its punycode form, such as xn--bcher-kva.example for b\u00fccher.example")
	}
	name, domain := strings.ToLower(s), strings.ToLower(domain)
	switch {
	case strings.Contains(name, "*"):
		return "", fault.Invalid("hostname", "must be one DNS name, such as api.example.com: a * is not supported")
	case strings.Contains(name, "/"):
		return "", fault.Invalid("hostname", "must be a DNS name alone, such as api.example.com, without a scheme or path")
	case !isDNSName(name):
		return "", fault.Invalid("hostname", "must be a DNS name without a port or trailing dot, such as api.example.com")
	}
	if isAddress(name) {
		return "", fault.Invalid("hostname", "must be a DNS name, not an IP address")
	}
	if name == "localhost" || name == domain {
		return "", fault.Invalid("hostname", "must not be %s: give a name under it, such as orders.%[1]s, or of a domain of yours", name)
	}
	if under, ok := strings.CutSuffix(name, "."+domain); ok && strings.HasPrefix(under, "gw-") {
		return "", fault.Invalid("hostname", "must not begin with gw- under %s: the server generates those names", domain)
	}
	return name, nil
}

// maxHostname is the maximum number of characters of a host name (RFC 1035).
const maxHostname = 253

// CheckHostname is ParseHostname for callers that do not know the gateway domain. The server
// accepts fewer names.
func CheckHostname(s string) error {
	_, err := ParseHostname(s, "")
	return err
}

// isDNSName reports whether s, in lower case, is a valid hostname (RFC 1123).
func isDNSName(s string) bool {
	if len(s) == 0 || len(s) > maxHostname {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return true
}

// isAddress reports whether clients take the DNS name s for an IPv4 address: they do if
// its last label is a number (URL Standard, "ends in a number"). IPv6 addresses are not
// DNS names.
func isAddress(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	last := s[strings.LastIndexByte(s, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}
