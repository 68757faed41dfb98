package openapi

import (
	"errors"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Our extensions of path items and operations. What a document says
// in security means nothing here: who may call is the gateway's business.
const (
	limitExtension = "x-keygate-rate-limit"
	authExtension  = "x-keygate-auth"
)

// policy is what our extensions say. Zero values are absent.
type policy struct {
	limit ratelimit.Config
	auth  gateway.Auth
}

// or returns p with what it lacks taken from otherwise.
func (p policy) or(otherwise policy) policy {
	if p.limit.IsZero() {
		p.limit = otherwise.limit
	}
	if p.auth == "" {
		p.auth = otherwise.auth
	}
	return p
}

func (p policy) authOrKey() gateway.Auth {
	if p.auth == "" {
		return gateway.AuthKey
	}
	return p.auth
}

// contradicts returns the extension in which p and o cannot both have what they
// say, or "". No auth is a key, and as good as said.
func (p policy) contradicts(o policy) (extension string) {
	switch {
	case !p.limit.IsZero() && !o.limit.IsZero() && p.limit != o.limit:
		return limitExtension
	case p.authOrKey() != o.authOrKey():
		return authExtension
	}
	return ""
}

// isOurs reports whether a name is, or is meant as, one of our extensions.
func isOurs(name string) bool { return strings.HasPrefix(strings.ToLower(name), "x-keygate") }

// readPolicy reads our extensions from the layers of a path item or from an
// operation. An extension that we do not have is a typing error, and would
// leave a route without its limit.
func readPolicy(field string, layers ...*document.Node) (policy, error) {
	var all policy
	for _, layer := range layers {
		var p policy
		for i := range layer.Nodes {
			m := &layer.Nodes[i]
			if !isOurs(m.Name) {
				continue
			}
			var err error
			switch at := field + "." + m.Name; m.Name {
			case limitExtension:
				p.limit, err = readLimit(m, at)
			case authExtension:
				p.auth, err = readAuth(m, at)
			default:
				err = m.NamePlace.Invalid(at, "Keygate has no such extension: there are %s and %s", limitExtension, authExtension)
			}
			if err != nil {
				return policy{}, err
			}
		}
		all = all.or(p)
	}
	return all, nil
}

func readAuth(n *document.Node, field string) (gateway.Auth, error) {
	text, err := readString(n, field)
	switch auth := gateway.Auth(text); {
	case err != nil:
		return "", err
	case auth == gateway.AuthKey:
		return gateway.AuthKey, nil
	case auth == gateway.AuthNone:
		return gateway.AuthNone, nil
	}
	return "", n.Invalid(field, "must be key, or none for a public route")
}

func readLimit(n *document.Node, field string) (ratelimit.Config, error) {
	if n.Kind != document.Mapping {
		return ratelimit.Config{}, n.Invalid(field, "must be a mapping with sustained, burst, daily or per, not %s", n.Kind)
	}
	var sustained, burst, daily, per string
	for i := range n.Nodes {
		m := &n.Nodes[i]
		var to *string
		switch m.Name {
		case "sustained":
			to = &sustained
		case "burst":
			to = &burst
		case "daily":
			to = &daily
		case "per":
			to = &per
		default:
			return ratelimit.Config{}, m.NamePlace.Invalid(field+"."+m.Name, "is no member of a rate limit: there are sustained, burst, daily and per")
		}
		text, err := readString(m, field+"."+m.Name)
		if err != nil {
			return ratelimit.Config{}, err
		}
		if text == "" {
			return ratelimit.Config{}, m.Invalid(field+"."+m.Name, "must not be empty: leave it out instead")
		}
		*to = strings.Clone(text)
	}
	c, err := ratelimit.ParseConfig(sustained, burst, daily, per)
	var bad *fault.Error
	if errors.As(err, &bad) {
		at, where := n, field
		if m := n.Member(bad.Field); m != nil {
			at, where = m, field+"."+bad.Field
		}
		return ratelimit.Config{}, at.Invalid(where, "%s", bad.Message)
	}
	return c, err
}
