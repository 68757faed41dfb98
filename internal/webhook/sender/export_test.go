package sender

import (
	"context"
	"net"
	"net/http"
	"syscall"
)

// DialWith replaces how s connects, guard and all, for receivers in memory.
func (s *Sender) DialWith(dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	s.client.Transport.(*http.Transport).DialContext = dial
}

// Refuse lets after decide about each address that the guard allowed, so that a
// test can see them and nothing is ever sent there.
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

// Bounds that the tests name.
const (
	LeaseTime   = leaseTime
	MaxWindow   = maxWindow
	MinWindow   = minWindow
	MaxInFlight = maxInFlight
	BreakAfter  = breakAfter
)
