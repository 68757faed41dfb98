package gateway

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// Limits of the settings in cors.
const (
	maxCORSMembers = 100
	maxCORSEntry   = 255     // bytes of an origin, a method or a header name
	maxCORSFields  = 6 << 10 // bytes of all methods and header names, as a preflight's response lists them
	maxCORSAge     = 86400   // seconds; browsers cap it at this or less
)

// Validate checks the CORS settings. Errors name the field below cors.
func (c *CORS) Validate() error {
	var problems []error
	if len(c.Origins) == 0 {
		problems = append(problems, fault.Invalid("origins", `must contain at least one origin such as https://app.example.com, or "*" for all origins`))
	}
	for _, list := range []struct {
		name  string
		items []string
		ok    func(string) bool
		want  string
	}{
		{"origins", c.Origins, isOrigin, `must be an origin such as https://app.example.com, or "*"`},
		{"methods", c.Methods, isCORSMethod, "must be a method in upper case, such as GET"},
		{"headers", c.Headers, isToken, "must be a header name"},
	} {
		if len(list.items) > maxCORSMembers {
			problems = append(problems, fault.Invalid(list.name, "must not have more than %d items", maxCORSMembers))
			continue
		}
		for i, item := range list.items {
			if len(item) > maxCORSEntry {
				problems = append(problems, fault.Invalid(fmt.Sprintf("%s[%d]", list.name, i), "must have at most %d bytes", maxCORSEntry))
			} else if !list.ok(item) {
				problems = append(problems, fault.Invalid(fmt.Sprintf("%s[%d]", list.name, i), "%s", list.want))
			}
		}
	}
	if len(strings.Join(c.Methods, ", "))+len(strings.Join(c.Headers, ", ")) > maxCORSFields {
		problems = append(problems, fault.Invalid("headers", "must have at most %d bytes together with methods, because every preflight's response lists them: leave out what browsers need not be told", maxCORSFields))
	}
	if c.MaxAge < 0 || c.MaxAge > maxCORSAge {
		problems = append(problems, fault.Invalid("max_age", "must be between 0 and %d seconds", maxCORSAge))
	}
	return fault.Join(problems...)
}

// isOrigin reports whether s is "*" or an origin as browsers send it: a scheme, a host and
// optionally a port, in lower case.
func isOrigin(s string) bool {
	if s == "*" {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && u.Scheme != "" && u.Host != "" && u.User == nil && s == u.Scheme+"://"+u.Host &&
		s == strings.ToLower(s) && !strings.ContainsAny(s, "* ,?#")
}

func isCORSMethod(s string) bool { return isToken(s) && s == strings.ToUpper(s) }
