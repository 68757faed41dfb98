package adminapi

import (
	"cmp"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// refuse makes the call fail with err, unless that is nil, and with every other problem that is
// found in the request. From then on operations only check their input.
func (c *call) refuse(err error) {
	if err == nil {
		return
	}
	c.invalid = c.withInvalid(err)
	c.idem = nil
	c.ctx = control.OnlyCheck(c.ctx)
}

// withInvalid adds err to c.invalid. Problems in err with a field that c.invalid already names are
// left out: they may exist only because the field could not be decoded.
func (c *call) withInvalid(err error) error {
	known := fault.ProblemsOf(c.invalid)
	if known == nil {
		return cmp.Or(c.invalid, err)
	}
	all := slices.Clone(known)
	for _, p := range fault.ProblemsOf(err) {
		if !slices.ContainsFunc(known, func(q fault.Problem) bool { return overlap(p.Field, q.Field) }) {
			all = append(all, p)
		}
	}
	return fault.InvalidAll(all, fault.LeftOut(c.invalid)+fault.LeftOut(err))
}

// allInvalid returns the error of a call that was refused, or that ended with the
// validation error err: everything that is wrong with the request, in the order of its
// body. A refused call fails for no other reason.
func (c *call) allInvalid(err error) error {
	err = c.withInvalid(err)
	problems := slices.Clone(fault.ProblemsOf(err))
	if problems == nil {
		return err
	}
	slices.SortStableFunc(problems, func(p, q fault.Problem) int { return c.rank(p) - c.rank(q) })
	if c.form { // RFC 6749, section 5.2
		return &fault.Error{Code: fault.InvalidRequest, Field: problems[0].Field, Message: strings.TrimSpace(problems[0].Field + " " + problems[0].Message)}
	}
	return fault.InvalidAll(problems, fault.LeftOut(err))
}

// overlap reports whether one of two fields is the other or is below it.
func overlap(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, ok := strings.CutPrefix(b, a)
	return ok && (rest == "" || a == "" || rest[0] == '.' || rest[0] == '[')
}

// rank returns the position in the body of the field that p is about or below. Fields
// that the body does not have come last.
func (c *call) rank(p fault.Problem) int {
	name := p.Field
	if i := strings.IndexAny(name, ".["); i > 0 {
		name = name[:i]
	}
	if at, given := c.order[name]; given {
		return at
	}
	return len(c.order)
}
