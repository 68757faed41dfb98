package gateway

import "github.com/keygate/keygate/internal/cost"

// costSet is the different costs of a gateway's routes. The zero value is empty.
type costSet struct {
	texts map[string]struct{}
	rules map[*cost.Rule]struct{} // those of texts that routes share
	bytes int
}

// add adds a cost, and says which bound of route tables it exceeds, or returns "".
func (s *costSet) add(rules cost.Rules) string {
	if len(rules) == 0 {
		return ""
	}
	if _, known := s.rules[&rules[0]]; known {
		return ""
	}
	if s.texts == nil {
		s.texts, s.rules = map[string]struct{}{}, map[*cost.Rule]struct{}{}
	}
	s.rules[&rules[0]] = struct{}{}
	text := rules.AppendJSON(nil)
	if _, known := s.texts[string(text)]; known {
		return ""
	}
	s.texts[string(text)] = struct{}{}
	s.bytes += len(text)
	switch {
	case len(s.texts) > MaxCosts:
		return manyCosts
	case s.bytes > MaxCostBytes:
		return largeCosts
	}
	return ""
}
