package gateway

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// MaxMethod is the maximum number of bytes of a method.
const MaxMethod = 32

// RowProblem is what is wrong with one field of a route in a table. Row counts from 0.
type RowProblem struct {
	Row            int
	Field, Message string
}

// Bounds of route tables (contract, 4.2). They keep the memory of a table in force and the
// time of a search in it in proportion.
const (
	// MaxSegments is the maximum number of segments of a path.
	MaxSegments = 64
	// MaxRoutes is the maximum number of routes of a gateway.
	MaxRoutes = 100_000
	// MaxTexts is the maximum number of different segments with text around a parameter, such as
	// {id}.json, that follow the same segments.
	MaxTexts = 1_000
	// MaxMethods is the maximum number of methods of a path, in all its routes.
	MaxMethods = 64
	// MaxCosts is the maximum number of different costs of a gateway's routes.
	MaxCosts = 1_000
	// MaxCostBytes is the maximum number of bytes of these costs as JSON.
	MaxCostBytes = 1 << 20
	// MaxAccountRoutes is the maximum number of routes of all gateways of an account.
	MaxAccountRoutes = 500_000
)

// MaxAccountGateways is the maximum number of gateways of an account.
const MaxAccountGateways = 10_000

// The public messages about routes beyond a bound.
const (
	manySegments  = "has more than 64 segments, the most that a path may have: end a shorter path in /*, which matches everything below"
	manyTexts     = "is one of more than 1000 templates with text around a parameter at one place, the most that a gateway may have: fold some into one parameter, as in /files/{name}"
	manyMethods   = "make more than 64 methods of one path, the most that it may have: remove some"
	manyCosts     = "is one of more than 1000 different costs, the most that a gateway may have: give routes the same cost, or split them between several gateways"
	largeCosts    = "makes the different costs of the gateway longer than 1 MiB as JSON, the most that they may have together: give routes the same cost, leave out prices, or split the routes between several gateways"
	manySplits    = "is one of more than 1000 different splits, the most that the routes of a gateway may have: give routes the same split, or give it to the gateway"
	manySplitKeys = "makes the splits of the gateway's routes name more than 1000 different keys, the most that they may name together: name owners, or give the split to the gateway"
	largeSplits   = "makes the different splits of the gateway's routes longer than 1 MiB as JSON, the most that they may have together: name fewer keys or owners, or give the split to the gateway"
	largeHandling = "makes what the gateway's routes strip, redirect, respond and set in headers longer than 4 MiB as JSON, the most that it may have together: give routes the same, shorten bodies, or split the routes between several gateways"
	manyRoutes    = "the gateway would have more than 100000 routes, the most that it may have: fold routes with parameters or /*, or split them between several gateways"
)

// CheckTable checks the routes of one gateway together: each path is a valid template, each
// method may be routed and is listed once, templates that match the same paths have no
// method in common, and no bound of route tables is exceeded. It returns at most
// fault.MaxCounted problems, in the order of the rows.
func CheckTable(routes []RouteSpec) []RowProblem {
	c := newTableCheck(routes[:min(len(routes), MaxRoutes)])
	for i := range c.routes {
		if c.row(i, true); len(c.problems) >= fault.MaxCounted {
			return c.problems[:fault.MaxCounted]
		}
	}
	if len(routes) > MaxRoutes {
		c.add(MaxRoutes, "", manyRoutes)
	}
	return c.problems
}

// CheckRoute checks a route that is to be one of a gateway's, beside the others in table, as
// CheckTable does. before is the path that the route had, or "" if it is new. A table from an
// earlier version may exceed a bound already; CheckRoute accepts this, unless the route makes the
// table exceed the bound further.
func CheckRoute(table []RouteSpec, in RouteSpec, before string) []RowProblem {
	c := newTableCheck(append(table[:len(table):len(table)], in))
	c.stored = true
	for i := range table {
		c.row(i, false)
	}
	c.stored, c.problems = false, nil
	if c.row(len(table), in.Path != before); len(c.problems) == 0 && before == "" && len(table) >= MaxRoutes {
		c.add(len(table), "path", manyRoutes)
	}
	return c.problems
}

// operation is a pattern and a method that a route answers. Two routes may not have an operation in common.
type operation struct{ pattern, method string }

type tableCheck struct {
	routes   []RouteSpec
	owner    map[operation]int      // the row of each operation
	methods  map[string]int         // the number of methods of each pattern
	texts    *TreeBuilder[struct{}] // the templates that have text around a parameter
	costs    costSet
	splits   splitSet
	handling handlingSet
	stored   bool // the rows are stored already, so their problems do not count
	problems []RowProblem
}

func newTableCheck(routes []RouteSpec) *tableCheck {
	return &tableCheck{routes: routes, owner: make(map[operation]int, len(routes)), methods: map[string]int{}, texts: NewTreeBuilder[struct{}]()}
}

func (c *tableCheck) add(row int, field, format string, args ...any) {
	c.problems = append(c.problems, RowProblem{row, field, fmt.Sprintf(format, args...)})
}

// row checks a route, alone and against the routes of earlier rows; bounded says whether its path
// must keep the bounds.
func (c *tableCheck) row(i int, bounded bool) {
	r := &c.routes[i]
	if message := c.costs.add(r.Cost); message != "" {
		c.add(i, "cost", "%s", message)
	}
	if message := c.splits.add(r.Split); message != "" {
		c.add(i, splitField, "%s", message)
	}
	if message := c.handling.add(r.Handling); message != "" {
		c.add(i, HandlingFields()[0], "%s", message)
	}
	before := len(c.problems)
	t, err := ParseTemplate(r.Path)
	switch {
	case err != nil:
		c.add(i, "path", "%s", messageOf(err))
	case strings.Contains(r.Path, document.EnvMark):
		c.add(i, "path", "%s", envForbidden)
	case bounded && len(t.segments) > MaxSegments:
		c.add(i, "path", manySegments)
	case c.addsText(&t) && bounded:
		c.add(i, "path", manyTexts)
	}
	badPath := len(c.problems) > before
	for _, p := range fault.ProblemsOf(r.Handling.Check(r.Path)) {
		if !badPath || p.Field != "strip_prefix" {
			c.add(i, p.Field, "%s", p.Message)
		}
	}
	if err := CheckMethods(r.Methods); err != nil {
		c.add(i, "methods", "%s", messageOf(err))
	}
	if badPath {
		return
	}
	c.conflicts(i, t.Pattern())
	if len(c.problems) > before {
		return
	}
	if c.methods[t.Pattern()] += len(r.Methods); c.methods[t.Pattern()] > MaxMethods && !c.stored {
		c.add(i, "methods", manyMethods)
	}
}

// conflicts takes the valid methods of row i, whose path has the pattern, and adds a problem for each earlier row
// that has some of them.
func (c *tableCheck) conflicts(i int, pattern string) {
	path := c.routes[i].Path
	var rows []int // the earlier rows, in the order of the methods
	var taken map[int][]string
	for _, method := range c.routes[i].Methods {
		op := operation{pattern, method}
		first, is := c.owner[op]
		switch {
		case methodProblem(method) != "" || is && first == i:
		case !is:
			c.owner[op] = i
		default:
			if taken == nil {
				taken = map[int][]string{}
			}
			if taken[first] == nil {
				rows = append(rows, first)
			}
			taken[first] = append(taken[first], method)
		}
	}
	for _, first := range rows {
		methods, verb := strings.Join(taken[first], ", "), "is"
		if len(taken[first]) > 1 {
			verb = "are"
		}
		if c.routes[first].Path == path {
			c.add(i, "methods", "%s of %s %s already listed by another route", methods, path, verb)
		} else {
			c.add(i, "methods", "%s of %s %s already listed by %s: paths that differ only in parameter names are the same path, so list each method once", methods, path, verb, c.routes[first].Path)
		}
	}
}

// addsText adds a template to c.texts, if it has text around a parameter, and reports whether more
// than MaxTexts such segments now follow the same segments.
func (c *tableCheck) addsText(t *Template) bool {
	if !slices.ContainsFunc(t.segments, func(s segment) bool { return s.kind == textSegment }) {
		return false
	}
	before := c.texts.Texts(*t)
	c.texts.Put(*t, &struct{}{})
	after := c.texts.Texts(*t)
	return after > MaxTexts && after > before
}

// messageOf returns the public message of a validation error.
func messageOf(err error) string {
	var bad *fault.Error
	if errors.As(err, &bad) {
		return bad.Message
	}
	return err.Error()
}

// CheckMethods checks the methods of one route: at least one, all of which may be routed,
// and no duplicates. The error is a validation error of the field "methods", whose message lists
// every problem.
func CheckMethods(methods []string) error {
	if len(methods) == 0 {
		return fault.Invalid("methods", "must contain at least one method")
	}
	var problems []string
	for i, m := range methods {
		problem := methodProblem(m)
		if problem == "" && slices.Contains(methods[:min(i, maxCompared)], m) {
			problem = m + " is listed twice"
		}
		if problem != "" && len(problems) < maxMethodProblems && !slices.Contains(problems, problem) {
			problems = append(problems, problem)
		}
	}
	if problems == nil {
		return nil
	}
	return fault.Invalid("methods", "%s", strings.Join(problems, "; "))
}

// maxMethodProblems is how many invalid methods a message names.
const maxMethodProblems = 8

// methodProblem says why the method m may not be routed, or returns "".
func methodProblem(m string) string {
	switch {
	case m == "CONNECT" || m == "TRACE":
		return m + " cannot be routed: Keygate always rejects it"
	case m == "*":
		return "* is not a method of requests, and would match none: list the methods, as in GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
	case !isMethod(m):
		return fmt.Sprintf("%.40q is not a valid method: %s", m, methodForm(m))
	}
	return ""
}

// maxCompared bounds how many methods a method is compared with. More methods are a problem in
// themselves.
const maxCompared = 2 * MaxMethods

// methodForm says how to write what is not a valid method.
func methodForm(m string) string {
	switch {
	case strings.ContainsAny(m, ", |/"):
		return "write each method as an item of its own, such as GET"
	case document.Lookalike(m) != "":
		return document.Lookalike(m)
	}
	return "write it in upper case, such as GET"
}

// isMethod reports whether m is an upper-case letter followed by upper-case letters,
// digits, hyphens and underscores.
func isMethod(m string) bool {
	if m == "" || len(m) > MaxMethod {
		return false
	}
	for i := range len(m) {
		c := m[i]
		switch {
		case 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || c == '-' || c == '_'):
		default:
			return false
		}
	}
	return true
}
