package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/keygate/keygate/internal/certificate/servercert"
)

// Reach connects to an origin once, TLS included, and closes the connection without a request. It is bounded by ctx
// alone, and makes no pool. If it fails, ReasonOf returns why.
func (p *Pools) Reach(ctx context.Context, o Origin) error {
	port := "80"
	var cfg *tls.Config
	if o.Scheme == "https" {
		port = "443"
		var err error
		if cfg, err = TLSConfig(o); err != nil {
			return err
		}
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	return p.Visit(ctx, &o, withPort(o.Host, port), cfg, func(net.Conn, string) error { return nil })
}

// Visit connects to address, a host or IP address with a port, as connections of o do, and closes the connection when visit has
// returned. With cfg, which is that of TLSConfig, it does the TLS handshake first; visit gets the protocol that was chosen in it.
// It is bounded by ctx alone, whose deadline holds for visit too, and makes no pool. The error is that of visit, or ReasonOf
// returns why there was no connection.
func (p *Pools) Visit(ctx context.Context, o *Origin, address string, cfg *tls.Config, visit func(c net.Conn, protocol string) error) error {
	spends := spender{account: o.Account}
	if err := p.takeForDial(&spends); err != nil {
		return err
	}
	defer p.budget.give(&spends, dialCost)
	d := p.cfg.dialer(o)
	d.KeepAlive = -1 // the connection ends soon
	conn, err := o.connect(ctx, d, address)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is to be sent any more
	if cfg == nil {
		return within(ctx, conn, func() error { return visit(conn, "") })
	}
	secured, cancel := context.WithTimeoutCause(ctx, cmp.Or(o.ConnectTimeout, handshakeTimeout), errHandshakeTimeout)
	defer cancel()
	below := servercert.Below(conn)
	over, err := handshake(secured, below, below, address, cfg)
	if err != nil {
		return err
	}
	return within(ctx, conn, func() error { return visit(over, over.ConnectionState().NegotiatedProtocol) })
}

// within calls f, which uses conn until the deadline or the end of ctx.
func within(ctx context.Context, conn net.Conn, f func() error) error {
	if deadline, has := ctx.Deadline(); has {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return f()
}

// TLSConfig returns what the TLS handshakes of connections of o need, apart from the protocols.
func TLSConfig(o Origin) (*tls.Config, error) { return newTLSConfig(o) }
