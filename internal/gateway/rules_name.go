package gateway

import (
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// MaxName is the number of characters that a gateway's name may have.
const MaxName = 255

// CheckName checks a display name. The error is a validation error of the
// field "name".
func CheckName(name string) error {
	if n := utf8.RuneCountInString(name); n == 0 || n > MaxName || !utf8.ValidString(name) {
		return fault.Invalid("name", "must have 1 to %d characters", MaxName)
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		return fault.Invalid("name", "may not hold control characters, such as the end of a line")
	}
	if strings.Contains(name, envMark) {
		return fault.Invalid("name", "%s", envKept)
	}
	return nil
}

// envKept says why no name or path may hold ${env:, which a configuration file
// that was exported would hand to whoever applies it: the value of a variable on
// that machine would then stand in the gateway for all to read.
const envKept = "may not hold ${env: since a configuration file has a value of the machine put in there: write it otherwise"

// CheckTimeout checks a timeout as users write it: a Go duration from a second
// to an hour. The error is a validation error of the field "timeout".
func CheckTimeout(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d > time.Hour {
		return fault.Invalid("timeout", "must be a duration from 1s to 1h, as in 30s or 1m30s")
	}
	return nil
}

// CheckGlobalLimit checks the limit of a whole gateway: sustained, and beside
// it burst if wanted. Errors name the field below the limit.
func CheckGlobalLimit(c ratelimit.Config) error {
	switch {
	case !c.Daily.IsZero():
		return fault.Invalid("daily", "a gateway's limit has no daily cap: set it on routes")
	case c.Per != "":
		return fault.Invalid("per", "a gateway's limit is one for all callers: set per on routes, or rate_limit on keys")
	case c.Sustained.IsZero():
		return fault.Invalid("sustained", "is required, as in 6000/min")
	default:
		return nil
	}
}

// MadeHostname returns the hostname of a gateway that was given none: its
// identifier with "_" as "-", below the gateway domain (contract, 4.1).
func MadeHostname(gatewayID, domain string) string {
	return strings.ReplaceAll(gatewayID, "_", "-") + "." + strings.ToLower(domain)
}

// ParseHostname reads a hostname that a user gives to a gateway and returns it
// in lower case. It may not be an IP address, localhost, the gateway domain or
// a name under it (contract, 4.1). The error is a validation error of the field
// "hostname".
func ParseHostname(s, domain string) (string, error) {
	name, domain := strings.ToLower(s), strings.ToLower(domain)
	if !isDNSName(name) {
		return "", fault.Invalid("hostname", "must be a DNS name of letters, digits, hyphens and dots, without port or final dot, as in api.example.com")
	}
	if isAddress(name) {
		return "", fault.Invalid("hostname", "must be a name, not an IP address")
	}
	if name == "localhost" || name == domain || strings.HasSuffix(name, "."+domain) {
		return "", fault.Invalid("hostname", "may not be localhost, %s or a name under it: those are made by the server", domain)
	}
	return name, nil
}

// isDNSName reports whether s, in lower case, is a name of letters, digits,
// hyphens and dots that DNS can hold (RFC 1123).
func isDNSName(s string) bool {
	if len(s) == 0 || len(s) > 253 {
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

// isAddress reports whether s is an IPv4 address in any of the forms that
// clients read as one: its last label is a number (URL Standard, "ends in a
// number"). It takes no IPv6 address, which is no DNS name.
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
