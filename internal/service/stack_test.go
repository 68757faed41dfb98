package service_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/service"
)

// noted is a service that notes when it is started and stopped.
type noted struct {
	name            string
	to              *[]string
	startErr, stops error
}

func (n noted) Start(context.Context) error {
	*n.to = append(*n.to, "start "+n.name)
	return n.startErr
}

func (n noted) Stop(context.Context) error {
	*n.to = append(*n.to, "stop "+n.name)
	return n.stops
}

// Guarantee: services stop in the reverse order, each once, also after a failure; a service that
// did not start is not stopped.
func TestStackStopsInReverseOrder(t *testing.T) {
	var stack service.Stack
	var got []string
	errA, errB, errC := errors.New("a"), errors.New("b"), errors.New("c")
	if err := stack.Start(t.Context(), noted{name: "a", to: &got, stops: errA}); err != nil {
		t.Fatal(err)
	}
	if err := stack.Start(t.Context(), noted{name: "b", to: &got, stops: errB}); err != nil {
		t.Fatal(err)
	}
	if err := stack.Start(t.Context(), noted{name: "c", to: &got, startErr: errC}); !errors.Is(err, errC) {
		t.Errorf("Start returned %v, want the service's error", err)
	}
	stack.Push(func(context.Context) error { got = append(got, "stop d"); return nil })
	err := stack.Stop(t.Context())
	if !errors.Is(err, errA) || !errors.Is(err, errB) {
		t.Errorf("Stop returned %v, want the errors of a and b", err)
	}
	want := []string{"start a", "start b", "start c", "stop d", "stop b", "stop a"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := stack.Stop(t.Context()); err != nil {
		t.Errorf("second Stop returned %v, want nil", err)
	}
	if len(got) != len(want) {
		t.Errorf("second Stop stopped %q again", got[len(want):])
	}
}
