package snapshot

import (
	"runtime"
	"sync"
	"weak"

	"github.com/keygate/keygate/internal/cost"
)

// sharedCosts has one program for all routes with equal costs, as long as some route has it. It is safe for concurrent use.
type sharedCosts struct {
	mu       sync.Mutex
	programs map[string]weak.Pointer[cost.Program] // by the rules as JSON

	// What was asked for last: routes of one page that have equal costs share their rules.
	last    *cost.Rule
	program *cost.Program
}

// of returns the program of rules, which must not change any more; nil for none.
func (s *sharedCosts) of(rules cost.Rules) *cost.Program {
	if len(rules) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == &rules[0] {
		return s.program
	}
	text := string(rules.AppendJSON(nil))
	p := s.programs[text].Value()
	if p == nil {
		if s.programs == nil {
			s.programs = map[string]weak.Pointer[cost.Program]{}
		}
		p = cost.Compile(rules)
		s.programs[text] = weak.Make(p)
		runtime.AddCleanup(p, s.drop, text)
	}
	s.last, s.program = &rules[0], p
	return p
}

// forget lets go of what was asked for last.
func (s *sharedCosts) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.program = nil, nil
}

// drop removes a program that no route has any more, unless there is a newer one.
func (s *sharedCosts) drop(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programs[text].Value() == nil {
		delete(s.programs, text)
	}
}
