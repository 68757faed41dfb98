package gateway

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/ratelimit"
)

// PathAdvice warns about a valid route path that is probably written in another router's language,
// where it would match other requests: it says what the path means there and what to write here. It
// returns "" for any other path.
func PathAdvice(path string) string {
	for segment := range strings.SplitSeq(path, "/") {
		if advice := segmentAdvice(segment); advice != "" {
			return advice
		}
	}
	if odd := document.Lookalike(path); odd != "" {
		return "has a character that is easily taken for another, and matches only paths that have it too: " + odd
	}
	return ""
}

func segmentAdvice(segment string) string {
	const below = ", and matches one segment alone: end the path in /* for everything below it"
	switch {
	case len(segment) > 1 && segment[0] == ':' && isWord(segment[1:]):
		return "has :name in a segment, which is plain text here: write {name} for a parameter"
	case len(segment) > 2 && segment[0] == '<' && strings.HasSuffix(segment, ">"):
		return "has <name> in a segment, which is plain text here: write {name} for a parameter"
	case strings.HasPrefix(segment, "[") && strings.HasSuffix(segment, "]"):
		return "has [name] in a segment, which is plain text here: write {name} for a parameter"
	}
	for {
		_, after, found := strings.Cut(segment, "{")
		if !found {
			return ""
		}
		name, rest, _ := strings.Cut(after, "}")
		switch {
		case strings.HasPrefix(name, "*"), strings.HasSuffix(name, "*"), strings.HasSuffix(name, "..."), strings.HasSuffix(name, ":path"):
			return "has a parameter for several segments" + below
		case strings.Contains(name, ":"):
			return "has a pattern in a parameter, which is not compared: write {name}, which matches every segment"
		case strings.HasSuffix(name, "+"):
			return "has a parameter of the form {name+}" + below
		case strings.HasSuffix(name, "?"):
			return "has an optional parameter, which is not optional here: make two routes, with and without it"
		}
		segment = rest
	}
}

func isWord(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// MethodAdvice returns a warning for a method that is probably meant as all methods, and "" for any other.
func MethodAdvice(method string) string {
	if method == "ANY" || method == "ALL" {
		return fmt.Sprintf("%s is not a method that clients send: list the methods, as in GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS", method)
	}
	return ""
}

// LimitAdvice returns a warning for a limit that is meant for each key but cannot be, and "" for any other.
func LimitAdvice(limit ratelimit.Config, auth Auth) string {
	if auth == AuthNone && limit.Per == ratelimit.PerKey {
		return "per: key has no effect on a public route, whose callers have no key: they share the limit. per: address limits each client address"
	}
	return ""
}

// Warnings returns warnings about routes whose effect the author of the file may not expect.
func (d *Document) Warnings() []string {
	var all []string
	seen := map[string]int{} // the number of routes with a warning
	warn := func(i int, field, advice string) {
		if advice == "" {
			return
		}
		if seen[advice]++; seen[advice] == 1 && len(all) < maxWarnings {
			all = append(all, fmt.Sprintf("routes[%d].%s (%s) %s", i, field, document.Short(d.Routes[i].Path), advice))
		}
	}
	for i := range d.Routes {
		r := &d.Routes[i]
		warn(i, "path", PathAdvice(r.Path))
		for _, m := range r.Methods {
			warn(i, "methods", cmp.Or(MethodAdvice(m), MethodWarning(m)))
		}
		warn(i, "rate_limit", LimitAdvice(r.RateLimit, cmp.Or(r.Auth, Auth(d.Gateway.DefaultAuth.Value))))
	}
	for i, text := range all {
		for advice, n := range seen {
			if n > 1 && strings.HasSuffix(text, advice) {
				all[i] = fmt.Sprintf("%s (%d of these)", text, n)
			}
		}
	}
	return all
}

// maxWarnings is the maximum number of warnings about a file. There are fewer kinds of them, except
// for those that name a character.
const maxWarnings = 50
