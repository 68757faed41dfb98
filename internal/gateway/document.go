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

// Section is the section "gateway" of a configuration file. The zero value changes nothing.
type Section struct {
	Name        Member[string]
	UpstreamURL Member[string]
	GlobalLimit Member[ratelimit.Config] // null removes it
}

// Member is a field of a section: absent, null (which removes the setting) or a value.
type Member[T any] struct {
	Present bool
	Null    bool
	Value   T
}

// given returns a Member with the value v.
func given[T any](v T) Member[T] { return Member[T]{Present: true, Value: v} }

// ParseDocument parses a configuration file in YAML or JSON. The routes have passed
// CheckTable, and each has sorted methods and an Auth. The error is a validation error whose
// message starts with "line 12, column 5: " and whose field is a dotted path, "" for the
// whole document.
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
		return m.NamePosition.Invalid(m.Name, "is not a field of a configuration file: use gateway or routes")
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

// eachMember calls f for each field of a mapping.
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

// withPosition adds a position to a validation error of the content of n: that of the field
// that it names, or that of n. It also puts field before the error's field.
func withPosition(err error, n *document.Node, field string) error {
	if err == nil {
		return nil
	}
	var moved *fault.Error
	if !errors.As(fault.Prefixed(field, err), &moved) {
		return err
	}
	at := n.Position
	if m := n.Member(strings.TrimPrefix(strings.TrimPrefix(moved.Field, field), ".")); m != nil {
		at = m.Position
	}
	return at.Invalid(moved.Field, "%s", moved.Message)
}

// read parses the section "gateway".
func (s *Section) read(n *document.Node) error {
	return eachMember(n, "gateway", func(m *document.Node) (err error) {
		field := "gateway." + m.Name
		switch m.Name {
		case "name":
			s.Name.Present = true
			if s.Name.Value, err = readText(m, field); err != nil {
				return err
			}
			return withPosition(CheckName(s.Name.Value), n, "gateway")
		case "upstream_url":
			s.UpstreamURL.Present = true
			if s.UpstreamURL.Value, err = readText(m, field); err != nil {
				return err
			}
			_, err = ParseUpstreamURL(s.UpstreamURL.Value)
			return withPosition(err, n, "gateway")
		case "global_rate_limit":
			s.GlobalLimit = Member[ratelimit.Config]{Present: true, Null: m.Kind == document.Null}
			if s.GlobalLimit.Null {
				return nil
			}
			if s.GlobalLimit.Value, err = ReadLimit(m, field); err != nil {
				return err
			}
			return withPosition(CheckGlobalLimit(s.GlobalLimit.Value), m, field)
		}
		return m.NamePosition.Invalid(field, "is not a field of gateway in a configuration file: use name, upstream_url or global_rate_limit")
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
		return withPosition(bad, &n.Nodes[i], fmt.Sprintf("routes[%d]", i))
	}
	return err
}

// TableRow splits an error of CheckTable into the index of the route and the error with its
// field below that route. ok is false for any other error.
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
			err = m.NamePosition.Invalid(at, "is not a field of a route: use path, methods, rate_limit or auth")
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
		return nil, n.Invalid(field, "must be a list such as [GET, POST], not %s", n.Kind)
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

// ReadAuth reads the authentication of a route from a document. The error is a validation
// error with the position.
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

// ReadLimit reads a rate limit from a mapping in a document. A field that is null is absent.
// The error is a validation error with the position.
func ReadLimit(n *document.Node, field string) (ratelimit.Config, error) {
	text := map[string]string{}
	err := eachMember(n, field, func(m *document.Node) (err error) {
		at := field + "." + m.Name
		switch m.Name {
		case "sustained", "burst", "daily", "per":
		default:
			return m.NamePosition.Invalid(at, "is not a field of a rate limit: use sustained, burst, daily or per")
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
	return c, withPosition(err, n, field)
}

// envMark starts a reference to an environment variable, which the command line replaces.
const envMark = "${env:"

// refuseEnv rejects ${env:NAME} in any value. The server replaces none, because its
// environment is not the author's (contract, section 5).
func refuseEnv(n *document.Node, field string) error {
	if strings.Contains(n.Text, envMark) {
		return n.Invalid(field, "${env:…} is replaced by the keygate command, not by the server: apply the file with keygate, or write the value itself")
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
