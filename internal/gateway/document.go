package gateway

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Document is a configuration file (specification, Rate limit configuration;
// contract, section 5).
type Document struct {
	Gateway Section
	Routes  []RouteSpec
}

// Section is the section gateway of a configuration file. The zero value
// changes nothing.
type Section struct {
	Name        Member[string]
	UpstreamURL Member[string]
	GlobalLimit Member[ratelimit.Config] // null leaves the gateway without one
}

// Member is a member of a section: absent, null (which removes), or a value.
type Member[T any] struct {
	Present bool
	Null    bool
	Value   T
}

// given returns the member that holds v.
func given[T any](v T) Member[T] { return Member[T]{Present: true, Value: v} }

// ParseDocument reads a configuration file: YAML, and so JSON. The routes have
// passed CheckTable, and each has sorted methods and an Auth. The error is a
// validation error whose message begins with "line 12, column 5: " and whose
// field is the dotted path of the place, "" for the document as a whole.
func ParseDocument(content []byte) (*Document, error) {
	root, err := document.Parse(content)
	if err != nil {
		return nil, err
	}
	if err := refuseEnv(root, ""); err != nil {
		return nil, err
	}
	d := &Document{Routes: []RouteSpec{}}
	var routes *document.Node
	err = eachMember(root, "", func(m *document.Node) error {
		switch m.Name {
		case "gateway":
			return d.Gateway.read(m)
		case "routes":
			routes = m
			return nil
		}
		return m.NamePlace.Invalid(m.Name, "is no member of a configuration file: there are gateway and routes")
	})
	if err != nil {
		return nil, err
	}
	if routes == nil {
		return nil, root.Invalid("routes", "is missing: write routes: [] for a gateway without routes")
	}
	if err := d.readRoutes(routes); err != nil {
		return nil, err
	}
	return d, nil
}

// eachMember calls f with the members of a mapping.
func eachMember(n *document.Node, field string, f func(m *document.Node) error) error {
	if n.Kind != document.Mapping {
		return n.Invalid(field, "must be a mapping, not %s", n.Kind)
	}
	for i := range n.Nodes {
		if err := f(&n.Nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

func readText(n *document.Node, field string) (string, error) {
	if n.Kind != document.String {
		return "", n.Invalid(field, "must be a string, not %s", n.Kind)
	}
	return strings.Clone(n.Text), nil
}

// placed gives a validation error of what n holds the place of the member that
// it names, or of n, and puts field before its field.
func placed(err error, n *document.Node, field string) error {
	if err == nil {
		return nil
	}
	var moved *fault.Error
	if !errors.As(fault.Prefixed(field, err), &moved) {
		return err
	}
	place := n.Place
	if m := n.Member(strings.TrimPrefix(strings.TrimPrefix(moved.Field, field), ".")); m != nil {
		place = m.Place
	}
	return place.Invalid(moved.Field, "%s", moved.Message)
}

// read reads the section gateway.
func (s *Section) read(n *document.Node) error {
	return eachMember(n, "gateway", func(m *document.Node) (err error) {
		field := "gateway." + m.Name
		switch m.Name {
		case "name":
			s.Name.Present = true
			if s.Name.Value, err = readText(m, field); err != nil {
				return err
			}
			return placed(CheckName(s.Name.Value), n, "gateway")
		case "upstream_url":
			s.UpstreamURL.Present = true
			if s.UpstreamURL.Value, err = readText(m, field); err != nil {
				return err
			}
			_, err = ParseUpstreamURL(s.UpstreamURL.Value)
			return placed(err, n, "gateway")
		case "global_rate_limit":
			s.GlobalLimit = Member[ratelimit.Config]{Present: true, Null: m.Kind == document.Null}
			if s.GlobalLimit.Null {
				return nil
			}
			if s.GlobalLimit.Value, err = ReadLimit(m, field); err != nil {
				return err
			}
			return placed(CheckGlobalLimit(s.GlobalLimit.Value), m, field)
		}
		return m.NamePlace.Invalid(field, "is no member of gateway here: there are name, upstream_url and global_rate_limit")
	})
}

func (d *Document) readRoutes(n *document.Node) error {
	if n.Kind != document.Sequence {
		return n.Invalid("routes", "must be a list, not %s", n.Kind)
	}
	for i := range n.Nodes {
		r, err := readRoute(&n.Nodes[i], fmt.Sprintf("routes[%d]", i))
		if err != nil {
			return err
		}
		d.Routes = append(d.Routes, r)
	}
	err := CheckTable(d.Routes)
	if i, bad, ok := TableRow(err); ok {
		return placed(bad, &n.Nodes[i], fmt.Sprintf("routes[%d]", i))
	}
	return err
}

// TableRow takes an error of CheckTable apart: the index of the route, and the
// error with its field below that route.
func TableRow(err error) (row int, bad *fault.Error, ok bool) {
	var found *fault.Error
	if !errors.As(err, &found) {
		return 0, nil, false
	}
	index, field, ok := strings.Cut(strings.TrimPrefix(found.Field, "["), "].")
	row, convErr := strconv.Atoi(index)
	if !ok || convErr != nil {
		return 0, nil, false
	}
	below := *found
	below.Field = field
	return row, &below, true
}

func readRoute(n *document.Node, field string) (RouteSpec, error) {
	r := RouteSpec{Auth: AuthKey}
	err := eachMember(n, field, func(m *document.Node) (err error) {
		at := field + "." + m.Name
		switch m.Name {
		case "path":
			r.Path, err = readText(m, at)
		case "methods":
			r.Methods, err = readMethods(m, at)
		case "rate_limit":
			if m.Kind != document.Null {
				r.RateLimit, err = ReadLimit(m, at)
			}
		case "auth":
			r.Auth, err = ReadAuth(m, at)
		default:
			err = m.NamePlace.Invalid(at, "is no member of a route: there are path, methods, rate_limit and auth")
		}
		return err
	})
	if err != nil {
		return r, err
	}
	for _, required := range []string{"path", "methods"} {
		if n.Member(required) == nil {
			return r, n.Invalid(field+"."+required, "is missing")
		}
	}
	return r, nil
}

func readMethods(n *document.Node, field string) ([]string, error) {
	if n.Kind != document.Sequence {
		return nil, n.Invalid(field, "must be a list as in [GET, POST], not %s", n.Kind)
	}
	methods := make([]string, len(n.Nodes))
	for i := range n.Nodes {
		at := fmt.Sprintf("%s[%d]", field, i)
		m, err := readText(&n.Nodes[i], at)
		if err != nil {
			return nil, err
		}
		methods[i] = m
	}
	slices.Sort(methods)
	return methods, nil
}

// ReadAuth reads what a document says of a route's authentication. The error
// is a validation error with the place.
func ReadAuth(n *document.Node, field string) (Auth, error) {
	text, err := readText(n, field)
	if err != nil {
		return "", err
	}
	if auth := Auth(text); auth == AuthKey || auth == AuthNone {
		return auth, nil
	}
	return "", n.Invalid(field, "must be key, or none for a public route")
}

// ReadLimit reads the rate limit that a document gives in a mapping; a
// member that is null is absent. The error is a validation error with the place.
func ReadLimit(n *document.Node, field string) (ratelimit.Config, error) {
	text := map[string]string{}
	err := eachMember(n, field, func(m *document.Node) (err error) {
		at := field + "." + m.Name
		switch m.Name {
		case "sustained", "burst", "daily", "per":
		default:
			return m.NamePlace.Invalid(at, "is no member of a rate limit: there are sustained, burst, daily and per")
		}
		if m.Kind == document.Null {
			return nil
		}
		if text[m.Name], err = readText(m, at); err == nil && text[m.Name] == "" {
			return m.Invalid(at, "must not be empty: leave it out instead")
		}
		return err
	})
	if err != nil {
		return ratelimit.Config{}, err
	}
	c, err := ratelimit.ParseConfig(text["sustained"], text["burst"], text["daily"], text["per"])
	return c, placed(err, n, field)
}

// envMark begins what the command line replaces by a variable of its environment.
const envMark = "${env:"

// refuseEnv refuses ${env:NAME} in any value: the server replaces none, since
// its environment is not the author's (contract, section 5).
func refuseEnv(n *document.Node, field string) error {
	if strings.Contains(n.Text, envMark) {
		return n.Invalid(field, "${env:…} is replaced by the keygate command on your machine, not by the server: apply the file with it, or write the value itself")
	}
	for i := range n.Nodes {
		at := fmt.Sprintf("%s[%d]", field, i)
		if n.Kind == document.Mapping {
			at = strings.TrimPrefix(field+"."+n.Nodes[i].Name, ".")
		}
		if err := refuseEnv(&n.Nodes[i], at); err != nil {
			return err
		}
	}
	return nil
}
