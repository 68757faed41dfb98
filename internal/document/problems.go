package document

import (
	"cmp"
	"slices"

	"github.com/keygate/keygate/internal/fault"
)

// Problems collects the validation errors of a document, at most fault.MaxCounted of them.
// The zero value is empty.
type Problems struct {
	list    []fault.Problem
	seen    map[string]bool // the messages in list
	leftOut int             // problems that are not in list
	other   error
}

// Add adds the problems of err, which may be nil. An equal message is added once: many
// references may lead to the same mistake. An error of another kind is returned by Err alone.
func (p *Problems) Add(err error) {
	problems := fault.ProblemsOf(err)
	if err != nil && problems == nil {
		p.other = err
	}
	for _, problem := range problems {
		if p.seen[problem.Message] || p.Full() {
			continue
		}
		if p.seen == nil {
			p.seen = map[string]bool{}
		}
		p.seen[problem.Message] = true
		p.list = append(p.list, problem)
	}
	p.AddLeftOut(fault.LeftOut(err))
}

// AddLeftOut counts n problems that are not listed.
func (p *Problems) AddLeftOut(n int) {
	p.leftOut += min(n, fault.MaxCounted-p.leftOut-len(p.list))
}

// Full reports whether further errors would be lost.
func (p *Problems) Full() bool { return p.other != nil || len(p.list)+p.leftOut >= fault.MaxCounted }

// Err returns one error with the first problems in the order of the document, and the number of the
// others, or nil if there are none.
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
	return fault.InvalidAll(sorted, p.leftOut)
}
