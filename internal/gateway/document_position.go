package gateway

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// withPosition adds a position to each problem of a validation error of the content of n: the
// position of the value that the problem names, or of the nearest value around it. It also puts
// field before the problem's field.
func withPosition(err error, n *document.Node, field string) error {
	list := fault.ProblemsOf(err)
	if list == nil {
		return err
	}
	var problems document.Problems
	problems.AddLeftOut(fault.LeftOut(err))
	for _, p := range list {
		name := field
		if p.Field != "" {
			name += "." + p.Field
		}
		at := within(n, p.Field)
		if odd := document.Lookalike(at.Text); odd != "" && name != "gateway.name" && !strings.Contains(p.Message, odd) { // a name may have any letters
			p.Message += ": " + odd
		}
		problems.Add(at.Invalid(name, "%s", p.Message))
	}
	return problems.Err()
}

// within returns the node below n that a dotted path leads to, or the last node on the way.
func within(n *document.Node, path string) *document.Node {
	for path != "" {
		if m := n.Member(path); m != nil { // a name may have dots
			return m
		}
		var m *document.Node
		var rest string
		if number, isItem := strings.CutPrefix(path, "["); isItem {
			number, rest, _ = strings.Cut(number, "]")
			if i, err := strconv.Atoi(number); err == nil && 0 <= i && i < len(n.Nodes) {
				m = &n.Nodes[i]
			}
		} else {
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				return n
			}
			m, rest = n.Member(path[:end]), path[end:]
		}
		if m == nil {
			return n
		}
		n, path = m, strings.TrimPrefix(rest, ".")
	}
	return n
}

// Positions are the positions of the values in the section "gateway" of a file, by field.
type Positions map[string]document.Position

// add adds n, which is valid and thus small, and everything in it.
func (p Positions) add(n *document.Node, field string) {
	p[field] = n.Position
	for i := range n.Nodes {
		at := fmt.Sprintf("%s[%d]", field, i)
		if n.Kind == document.Mapping {
			at = field + "." + n.Nodes[i].Name
		}
		p.add(&n.Nodes[i], at)
	}
}

// In adds to each problem of a validation error the position of the field that it names, or of the
// nearest field around it. A problem of any other field stays as it is.
func (p Positions) In(err error) error {
	list := fault.ProblemsOf(err)
	if list == nil || len(p) == 0 {
		return err
	}
	problems := make([]fault.Problem, len(list))
	for i, problem := range list {
		problems[i] = problem
		for at := problem.Field; at != ""; at = at[:max(strings.LastIndexAny(at, ".["), 0)] {
			if position, ok := p[at]; ok {
				problems[i] = fault.ProblemsOf(position.Invalid(problem.Field, "%s", problem.Message))[0]
				break
			}
		}
	}
	return fault.InvalidAll(problems, fault.LeftOut(err))
}
