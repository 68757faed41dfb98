package control

import "github.com/keygate/keygate/internal/cost"

// costComparer compares the costs of route tables, each pair once: many routes share a cost.
type costComparer struct {
	known map[[2]*cost.Rule]bool
}

// same reports whether both costs have the same effect.
func (c *costComparer) same(a, b cost.Rules) bool {
	if len(a) == 0 || len(b) == 0 || &a[0] == &b[0] {
		return len(a) == len(b)
	}
	pair := [2]*cost.Rule{&a[0], &b[0]}
	same, known := c.known[pair]
	if !known {
		if c.known == nil {
			c.known = map[[2]*cost.Rule]bool{}
		}
		same = a.Equal(b)
		c.known[pair] = same
	}
	return same
}

// maxShownCosts is how many bytes of costs a list of changed routes has. Further ones are digests: a table may have 100,000
// routes with a cost of 64 KiB.
const maxShownCosts = 1 << 20

// shownCosts are the costs in a list of changed routes.
type shownCosts struct {
	bytes   int
	digests map[*cost.Rule]string
}

// of returns a cost as a list of changed routes has it; nil for none.
func (s *shownCosts) of(rules cost.Rules) any {
	if len(rules) == 0 {
		return nil
	}
	if known := s.digests[&rules[0]]; known != "" {
		return known
	}
	text := rules.AppendJSON(nil)
	if s.bytes += len(text); s.bytes <= maxShownCosts {
		return rules
	}
	if s.digests == nil {
		s.digests = map[*cost.Rule]string{}
	}
	s.digests[&rules[0]] = digest(text)
	return s.digests[&rules[0]]
}
