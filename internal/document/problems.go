package document

import (
	"cmp"
	"slices"

	"github.com/keygate/keygate/internal/fault"
)

// Problems collects the validation errors of a document, at most fault.MaxProblems of them.
// The zero value is empty.
type Problems struct {
	list  []fault.Problem
	other error
}

// Add adds the problems of err, which may be nil. An equal message is added once: many
// references may lead to the same mistake. An error of another kind is returned by Err alone.
func (p *Problems) Add(err error) {
	problems := fault.ProblemsOf(err)
	if err != nil && problems == nil {
		p.other = err
	}
	for _, problem := range problems {
		known := slices.ContainsFunc(p.list, func(q fault.Problem) bool { return q.Message == problem.Message })
		if !known && len(p.list) < fault.MaxProblems {
			p.list = append(p.list, problem)
		}
	}
}

// Full reports whether further errors would be lost.
func (p *Problems) Full() bool { return p.other != nil || len(p.list) == fault.MaxProblems }

// Err returns one error with all problems in the order of the document, or nil if there are
// none.
func (p *Problems) Err() error {
	if p.other != nil {
		return p.other
	}
	if len(p.list) == 0 {
		return nil
	}
	sorted := slices.Clone(p.list)
	slices.SortStableFunc(sorted, func(a, b fault.Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &fault.Error{Code: fault.ValidationFailed, Field: sorted[0].Field, Message: sorted[0].Message, Problems: sorted}
}
