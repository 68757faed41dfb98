package gateway

import (
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// withPosition is document.WithPosition for the fields of a configuration file.
func withPosition(err error, n *document.Node, field string) error {
	return document.WithPosition(err, n, field, "gateway.name")
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
