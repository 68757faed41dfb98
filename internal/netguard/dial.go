package netguard

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// MaxAddresses is how many addresses of a name Dial tries at most. A name server may give thousands.
const MaxAddresses = 32

// attempts counts the attempts to connect of a Dial. Nil counts none.
type attempts struct {
	end context.CancelFunc

	mu      sync.Mutex
	n       int
	refused error // the first error of the guard
}

type attemptsKey struct{}

// Dial connects by d, whose ControlContext is or calls that of Guard.Control. If none of the first MaxAddresses addresses takes
// the connection, the error is that of the guard if it has refused one, and otherwise wraps EHOSTUNREACH. Calls with a context
// of Bounded are bounded together.
func Dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	ctx, cancel := Bounded(ctx)
	defer cancel()
	conn, err := d.DialContext(ctx, network, address)
	if err == nil {
		return conn, nil
	}
	tries := attemptsOf(ctx)
	tries.mu.Lock()
	defer tries.mu.Unlock()
	switch {
	case tries.n <= MaxAddresses:
		return nil, err
	case tries.refused != nil:
		return nil, &net.OpError{Op: "dial", Net: network, Err: tries.refused}
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("none of the first %d addresses of %s takes a connection: %w", MaxAddresses, address, syscall.EHOSTUNREACH)}
}

// Bounded returns a context for several calls of Dial, which together try MaxAddresses addresses at most. It ends when they have tried
// more.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if attemptsOf(ctx) != nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, attemptsKey{}, &attempts{end: cancel}), cancel
}

// attemptsOf returns the attempts that are counted for ctx, or nil.
func attemptsOf(ctx context.Context) *attempts {
	a, _ := ctx.Value(attemptsKey{}).(*attempts)
	return a
}

// begin counts an attempt. The error is that there were too many, which ends the context.
func (a *attempts) begin() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n++; a.n > MaxAddresses {
		a.end()
		return context.Canceled
	}
	return nil
}

// refuse notes the error of the guard for an address.
func (a *attempts) refuse(err error) {
	if a == nil || err == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused == nil {
		a.refused = err
	}
}
