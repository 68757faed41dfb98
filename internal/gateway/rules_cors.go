package gateway

import (
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/document"
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
		name    string
		items   []string
		problem func(string) string
	}{
		{"origins", c.Origins, originProblem},
		{"methods", c.Methods, corsMethodProblem},
		{"headers", c.Headers, corsHeaderProblem},
	} {
		if len(list.items) > maxCORSMembers {
			problems = append(problems, fault.Invalid(list.name, "must not have more than %d items", maxCORSMembers))
			continue
		}
		for i, item := range list.items {
			if len(item) > maxCORSEntry {
				problems = append(problems, fault.Invalid(fmt.Sprintf("%s[%d]", list.name, i), "must have at most %d bytes", maxCORSEntry))
			} else if problem := list.problem(item); problem != "" {
				problems = append(problems, fault.Invalid(fmt.Sprintf("%s[%d]", list.name, i), "%s", problem))
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

func originProblem(s string) string {
	_, problem := parseOrigin(s)
	return problem
}

func corsMethodProblem(s string) string {
	switch {
	case s == "ANY" || s == "ALL":
		return "must be a method in upper case, such as GET, or * for all: browsers never send " + s
	case s == "CONNECT" || s == "TRACE" || s == "TRACK":
		return "must not be " + s + ", which browsers never send"
	case !isToken(s) || s != strings.ToUpper(s):
		return "must be a method in upper case, such as GET" + hint(document.Lookalike(s))
	}
	return ""
}

func corsHeaderProblem(s string) string {
	if !isToken(s) {
		return "must be a header name" + hint(document.Lookalike(s))
	}
	return ""
}
