package gateway

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// Limits of cors.
const (
	maxCORSMembers = 100
	maxCORSAge     = 86400 // seconds, the longest that browsers keep
)

// Validate checks what a user gives as cors. Errors name the field below cors.
func (c *CORS) Validate() error {
	if len(c.Origins) == 0 {
		return fault.Invalid("origins", `must name at least one origin, as in https://app.example.com, or "*" for every one`)
	}
	for _, list := range []struct {
		name  string
		items []string
		ok    func(string) bool
		want  string
	}{
		{"origins", c.Origins, isOrigin, `must be an origin, as in https://app.example.com, or "*"`},
		{"methods", c.Methods, isCORSMethod, "must be a method in capitals, as in GET"},
		{"headers", c.Headers, isToken, "must be a name of a header field"},
	} {
		if len(list.items) > maxCORSMembers {
			return fault.Invalid(list.name, "may have at most %d members", maxCORSMembers)
		}
		for i, item := range list.items {
			if !list.ok(item) {
				return fault.Invalid(fmt.Sprintf("%s[%d]", list.name, i), "%s", list.want)
			}
		}
	}
	if c.MaxAge < 0 || c.MaxAge > maxCORSAge {
		return fault.Invalid("max_age", "must be from 0 to %d seconds", maxCORSAge)
	}
	return nil
}

// isOrigin reports whether s is written as browsers write an Origin: scheme,
// host and perhaps a port, in lower case, without a path.
func isOrigin(s string) bool {
	if s == "*" {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && u.Scheme != "" && u.Host != "" && u.User == nil && s == u.Scheme+"://"+u.Host &&
		s == strings.ToLower(s) && !strings.ContainsAny(s, "* ,?#")
}

func isCORSMethod(s string) bool { return isToken(s) && s == strings.ToUpper(s) }
