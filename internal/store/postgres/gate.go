package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/control"
)

// gate bounds how many mutations of this process have a connection, and so how many of them wait for the head of the
// change log, whose lock the server gives to the transaction that has waited longest. An urgent mutation
// (control.IsUrgent) passes the others that wait here: a slot is reserved for urgent ones, and they take turns at the
// other slots too, so neither kind keeps the other out.
type gate struct {
	slots  chan struct{} // held by mutations of either kind
	urgent chan struct{} // held by an urgent one
}

func newGate() gate {
	return gate{make(chan struct{}, mutators), make(chan struct{}, urgentMutators)}
}

// enter waits for a slot until ctx ends. The caller must call leave.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	urgent := g.urgent
	if !control.IsUrgent(ctx) {
		urgent = nil
	}
	select {
	case urgent <- struct{}{}:
		return func() { <-g.urgent }, nil
	case g.slots <- struct{}{}:
		return func() { <-g.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
