package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Document is a configuration file (specification, Rate limit configuration;
// contract, section 5).
type Document struct {
	Gateway Patch
	Routes  []RouteSpec
}

// ForwardEverything returns a configuration file without settings, with one route: it forwards the usual methods
// on every path, also /, of callers with a key.
func ForwardEverything() *Document {
	return &Document{Routes: []RouteSpec{{Path: "/*", Methods: slices.Sorted(slices.Values(EverydayMethods()))}}}
}

// ParseDocument parses a configuration file in YAML or JSON. The routes have passed
// CheckTable, and each has sorted methods. The error is a validation error that
// lists everything that is wrong, in the order of the file. Each message starts with
// "line 12, column 5: ", and each field is a dotted path, "" for the whole document.
func ParseDocument(content []byte) (*Document, error) {
	d, _, err := LocateDocument(content)
	return d, err
}

// LocateDocument is ParseDocument, and returns the positions of the settings too, and of the upstreams and splits of routes.
func LocateDocument(content []byte) (*Document, Positions, error) {
	d := &Document{Routes: []RouteSpec{}}
	root, err := ReadFile(content, d.read)
	if err != nil {
		return nil, nil, err
	}
	positions := Positions{}
	if section := root.Member("gateway"); section != nil {
		positions.add(section, "gateway")
	}
	if routes := root.Member("routes"); routes != nil {
		for i := range d.Routes {
			if d.Routes[i].Upstream != "" {
				positions[UpstreamOfRoute(i)] = routes.Nodes[i].Member("upstream").Position
			}
			if len(d.Routes[i].Split) > 0 {
				for item, at := range SplitPositions(routes.Nodes[i].Member(splitField)) {
					positions[fmt.Sprintf("%s[%d]", SplitOfRoute(i), item)] = at
				}
			}
			if !d.Routes[i].Handling.NamesHeaders() {
				continue
			}
			for _, name := range [...]string{"respond", requestHeadersName, responseHeadersName} {
				if m := routes.Nodes[i].Member(name); m != nil {
					positions[RouteField(i)+"."+name] = m.Position
				}
			}
		}
	}
	return d, positions, nil
}

// UpstreamOfRoute returns the field of a configuration file with the upstream of route i.
func UpstreamOfRoute(i int) string { return fmt.Sprintf("routes[%d].upstream", i) }

// RouteField returns the field of a configuration file with route i.
func RouteField(i int) string { return fmt.Sprintf("routes[%d]", i) }

// SplitOfRoute returns the field of a configuration file with the split of route i.
func SplitOfRoute(i int) string { return fmt.Sprintf("routes[%d].%s", i, splitField) }

// ReadFile parses a file in YAML or JSON whose content read reads, and refuses each value with ${env:NAME}. The error is
// as that of ParseDocument: it has what read returns, except for the values that are not known because of their
// variable.
func ReadFile(content []byte, read func(root *document.Node) error) (*document.Node, error) {
	root, err := document.Parse(content)
	if err != nil {
		return nil, err
	}
	var problems document.Problems
	refuseEnv(root, "", &problems)
	problems.Add(except(read(root), problems.Err()))
	return root, problems.Err()
}

// except returns err without the problems of values with ${env:NAME}; variables has a problem for each of them.
func except(err, variables error) error {
	unknown := fault.ProblemsOf(variables)
	if unknown == nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(fault.ProblemsOf(err)), func(p fault.Problem) bool {
		return slices.ContainsFunc(unknown, func(v fault.Problem) bool {
			item, below := strings.CutPrefix(v.Field, p.Field)
			return v.Line == p.Line && v.Column == p.Column || below && (item == "" || item[0] == '[')
		})
	})
	return fault.InvalidAll(rest, fault.LeftOut(err))
}

// read parses the whole file.
func (d *Document) read(root *document.Node) error {
	return root.EachMember("", func(m *document.Node) error {
		switch m.Name {
		case "gateway":
			return d.Gateway.read(m)
		case "routes":
			return d.readRoutes(m)
		case "$schema": // for editors
			_, err := m.ReadText(m.Name)
			return err
		case "plans":
			return m.Invalid(m.Name, "plans are not of one gateway: give them a file of their own, which keygate config apply takes")
		}
		return m.Unknown(m.Name, "is not a field of a configuration file: use gateway or routes")
	}, func() error {
		if root.Member("routes") == nil && !root.HasLike("routes") {
			return root.Invalid("routes", "is missing: write routes: [] for a gateway without routes")
		}
		return nil
	})
}

func (d *Document) readRoutes(n *document.Node) error {
	if n.Kind != document.Sequence {
		return n.Mismatch("routes", document.Sequence, "")
	}
	var problems document.Problems
	unread := map[string]bool{} // the fields that have no value because of a problem that is reported already
	var costs cost.Cache
	for i := range n.Nodes {
		r, err := readRoute(&n.Nodes[i], fmt.Sprintf("routes[%d]", i), &costs)
		d.Routes = append(d.Routes, r)
		for _, p := range fault.ProblemsOf(err) {
			unread[p.Field] = true
			if len(r.Methods) == 0 {
				unread[strings.TrimRight(p.Field, "[]0123456789")] = true // if it is an item of methods
			}
		}
		if problems.Add(err); problems.Full() {
			return problems.Err()
		}
	}
	for _, bad := range CheckTable(d.Routes) {
		field := fmt.Sprintf("routes[%d]", bad.Row)
		if !unread[field] && !unread[field+"."+bad.Field] {
			problems.Add(withPosition(fault.Invalid(bad.Field, "%s", bad.Message), &n.Nodes[bad.Row], field))
		}
	}
	return problems.Err()
}

func readRoute(n *document.Node, field string, costs *cost.Cache) (RouteSpec, error) {
	r := RouteSpec{}
	var handling Handling
	missing := func(name string) func() error {
		return func() error {
			if n.Member(name) == nil && !n.HasLike(name) {
				return n.Invalid(field+"."+name, "is missing")
			}
			return nil
		}
	}
	err := n.EachMember(field, func(m *document.Node) (err error) {
		at := field + "." + m.Name
		switch m.Name {
		case "path":
			r.Path, err = m.ReadText(at)
		case "methods":
			r.Methods, err = readMethods(m, at)
		case "rate_limit":
			if m.Kind != document.Null {
				r.RateLimit, err = ReadLimit(m, at)
			}
		case "cost":
			r.Cost, err = costs.Read(m)
			err = withPosition(err, m, at)
		case "concurrency":
			if m.Kind != document.Null {
				r.Concurrency, err = ReadConcurrency(m, at)
			}
		case "auth":
			r.Auth, err = ReadAuth(m, at)
		case "upstream":
			r.Upstream, err = ReadUpstreamName(m, at)
		case splitField:
			r.Split, err = ReadSplit(m, at)
		default:
			var known bool
			if known, err = ReadHandling(&handling, m.Name, m, at); !known {
				err = m.Unknown(at, "is not a field of a route: use path, methods, rate_limit, concurrency, cost, auth, upstream, split, "+strings.Join(HandlingFields(), ", "))
			}
		}
		return err
	}, missing("path"), missing("methods"))
	r.Handling = handling.Stored()
	return r, err
}

// ParseCost parses a file with the cost of a route alone, a list in YAML or JSON. The error is as from ParseDocument.
func ParseCost(content []byte) (rules cost.Rules, err error) {
	_, err = ReadFile(content, func(root *document.Node) error {
		rules, err = cost.Read(root)
		return withPosition(err, root, "")
	})
	return rules, err
}

func readMethods(n *document.Node, field string) ([]string, error) {
	if n.Kind != document.Sequence {
		return nil, n.Mismatch(field, document.Sequence, "a list such as [GET, POST]")
	}
	var problems document.Problems
	methods := make([]string, 0, len(n.Nodes))
	for i := range n.Nodes {
		m, err := n.Nodes[i].ReadText(fmt.Sprintf("%s[%d]", field, i))
		if problems.Add(err); problems.Full() {
			break
		}
		if err == nil {
			methods = append(methods, m)
		}
	}
	slices.Sort(methods)
	return methods, problems.Err()
}

// ReadAuth reads the authentication of a route from a document. The error is a validation
// error with the position.
func ReadAuth(n *document.Node, field string) (Auth, error) {
	text, err := n.ReadText(field)
	if err != nil {
		return "", err
	}
	if auth := Auth(text); slices.Contains(Auths(), auth) {
		return auth, nil
	}
	return "", n.Invalid(field, "must be key, token, any, or none for a public route")
}

// ReadUpstreamName reads the upstream of a route from a document, by name: "" for DefaultUpstream, which may be named or
// null. The error is a validation error with the position.
func ReadUpstreamName(n *document.Node, field string) (string, error) {
	if n.Kind == document.Null {
		return "", nil
	}
	name, err := n.ReadText(field)
	if err == nil && CheckUpstreamName(name) != nil {
		err = n.Invalid(field, "is not the name of an upstream, which has 1 to %d characters of a-z, 0-9, - and _", maxUpstreamName)
	}
	if err != nil {
		return "", err
	}
	return StoredUpstreamName(name), nil
}

// ReadLimit reads a rate limit from a mapping in a document. A field that is null is absent.
// The error is a validation error with the positions.
func ReadLimit(n *document.Node, field string) (ratelimit.Config, error) {
	var c ratelimit.Config
	rates := map[string]*ratelimit.Rate{"sustained": &c.Sustained, "burst": &c.Burst, "daily": &c.Daily}
	err := n.EachMember(field, func(m *document.Node) error {
		at := field + "." + m.Name
		rate := rates[m.Name]
		switch {
		case rate == nil && m.Name != "per":
			return m.Unknown(at, "is not a field of a rate limit: use sustained, burst, daily or per")
		case m.Kind == document.Null:
			return nil
		}
		text, err := m.ReadText(at)
		switch {
		case err != nil:
			return err
		case text == "":
			return m.Invalid(at, "must not be empty: leave it out instead")
		case rate == nil:
			c.Per = text
			return nil
		}
		return withPosition(rate.UnmarshalText([]byte(text)), m, at)
	})
	if err != nil {
		// The parts that are present are checked nevertheless, so that all mistakes are reported.
		if c.Sustained.IsZero() {
			c.Sustained, _ = ratelimit.ParseRate("1/s")
		}
		var problems document.Problems
		problems.Add(err)
		problems.Add(withPosition(c.Validate(), n, field))
		return ratelimit.Config{}, problems.Err()
	}
	return c, withPosition(c.Validate(), n, field)
}

// ReadConcurrency reads the bound of requests in flight of a route from a mapping in a document. A field that is null is
// absent. The error is a validation error with the positions.
func ReadConcurrency(n *document.Node, field string) (ratelimit.Concurrency, error) {
	c, unread := ratelimit.Concurrency{}, map[string]bool{}
	var problems document.Problems
	problems.Add(n.EachMember(field, func(m *document.Node) (err error) {
		at := field + "." + m.Name
		switch {
		case m.Name != "max" && m.Name != "per":
			return m.Unknown(at, "is not a field of concurrency: use max or per")
		case m.Kind == document.Null:
			return nil
		case m.Name == "max":
			c.Max, err = m.ReadCount(at)
		default:
			if c.Per, err = m.ReadText(at); err == nil && c.Per == "" {
				err = m.Invalid(at, "must not be empty: leave it out instead")
			}
		}
		unread[m.Name] = err != nil
		return err
	}))
	if n.Kind != document.Mapping {
		return ratelimit.Concurrency{}, problems.Err()
	}
	if m := n.Member("max"); (m == nil || m.Kind == document.Null) && !n.HasLike("max") {
		problems.Add(n.Invalid(field+".max", "is missing: give the number of requests that may be in flight at once"))
		unread["max"] = true
	}
	unread["max"] = unread["max"] || n.HasLike("max")
	for _, p := range fault.ProblemsOf(c.Validate()) {
		if !unread[p.Field] {
			problems.Add(withPosition(fault.Invalid(p.Field, "%s", p.Message), n, field))
		}
	}
	if err := problems.Err(); err != nil {
		return ratelimit.Concurrency{}, err
	}
	return c, nil
}

// refuseEnv adds a problem for each value with ${env:NAME}. The server replaces none, because
// its environment is not the author's (contract, section 5).
func refuseEnv(n *document.Node, field string, problems *document.Problems) {
	if strings.Contains(n.Text, document.EnvMark) {
		problems.Add(n.Invalid(field, "${env:…} is replaced by the keygate command, not by the server: apply the file with keygate, or write the value itself"))
	}
	for i := range n.Nodes {
		if problems.Full() {
			return
		}
		at := fmt.Sprintf("%s[%d]", field, i)
		if n.Kind == document.Mapping {
			at = strings.TrimPrefix(field+"."+n.Nodes[i].Name, ".")
		}
		refuseEnv(&n.Nodes[i], at, problems)
	}
}
