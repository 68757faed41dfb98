package service

import (
	"context"
	"errors"
)

// Stack stops services in the reverse order of their start. The zero value is empty and
// ready to use. It is not safe for concurrent use.
type Stack struct {
	stops []func(ctx context.Context) error
}

// Start starts services and pushes them, one after the other. If one fails, neither it nor those after it are
// pushed, and those are not started.
func (t *Stack) Start(ctx context.Context, all ...Service) error {
	for _, s := range all {
		if err := s.Start(ctx); err != nil {
			return err
		}
		t.Push(s.Stop)
	}
	return nil
}

// Push adds a function that Stop calls before all functions that were pushed earlier.
func (t *Stack) Push(stop func(ctx context.Context) error) { t.stops = append(t.stops, stop) }

// Stop calls the pushed functions one after the other, the last pushed first. After a
// failure it continues with the rest, and it returns all errors, joined. ctx bounds all
// of them together. Afterwards the stack is empty.
func (t *Stack) Stop(ctx context.Context) error {
	var errs []error
	for len(t.stops) > 0 {
		last := len(t.stops) - 1
		stop := t.stops[last]
		t.stops = t.stops[:last]
		errs = append(errs, stop(ctx))
	}
	return errors.Join(errs...)
}
