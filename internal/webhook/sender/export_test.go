package sender

import (
	"context"
	"net"
	"net/http"
	"syscall"
)

// DialWith replaces how s connects, including the guard, for receivers in memory.
func (s *Sender) DialWith(dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	s.client.Transport.(*http.Transport).DialContext = dial
}

// Refuse calls after for each address that the guard allowed, so that a test can record
// the addresses and return an error that prevents the connection.
func (s *Sender) Refuse(after func(network, address string) error) {
	dialer := s.dialer
	guard := dialer.ControlContext
	dialer.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if err := guard(ctx, network, address, c); err != nil {
			return err
		}
		return after(network, address)
	}
}

// Bounds for the tests.
const (
	LeaseTime          = leaseTime
	MaxWindow          = maxWindow
	MinWindow          = minWindow
	MaxInFlight        = maxInFlight
	UnprovenSlots      = maxInFlight / 8
	BreakAfterTimeouts = breakAfterTimeouts

	BreakAfter = breakAfter
)
