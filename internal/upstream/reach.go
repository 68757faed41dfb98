package upstream

import (
	"cmp"
	"context"

	"github.com/keygate/keygate/internal/certificate/servercert"
)

// Reach connects to an origin once, TLS included, and closes the connection without a request. It is bounded by ctx
// alone, and makes no pool. If it fails, ReasonOf returns why.
func (p *Pools) Reach(ctx context.Context, o Origin) error {
	spends := spender{account: o.Account}
	if err := p.takeForDial(&spends); err != nil {
		return err
	}
	defer p.budget.give(&spends, dialCost)
	port := "80"
	if o.Scheme == "https" {
		port = "443"
	}
	address := withPort(o.Host, port)
	conn, err := o.connect(ctx, p.cfg.dialer(&o), address)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	if o.Scheme != "https" {
		return nil
	}
	cfg, err := newTLSConfig(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(o.ConnectTimeout, handshakeTimeout), errHandshakeTimeout)
	defer cancel()
	cfg.NextProtos = []string{"h2", "http/1.1"}
	below := servercert.Below(conn)
	_, err = handshake(ctx, below, below, address, cfg)
	return err
}
