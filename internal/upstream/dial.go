package upstream

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/keygate/keygate/internal/netguard"
)

const (
	idleConns = 1024 // idle connections kept for each origin
	// maxDials is how many connections of a pool without a limit of connections may be in the
	// making, TLS handshake included. Further requests wait for these, or for a connection that
	// becomes idle.
	maxDials = 128
)

// dialer returns the dialer of connections to o.
func (c *Config) dialer(o *Origin) *net.Dialer {
	return &net.Dialer{
		Timeout:        cmp.Or(o.ConnectTimeout, c.ConnectTimeout),
		Resolver:       c.Resolver,
		ControlContext: c.Guard.Control(netguard.Policy{PublicOnly: o.PublicOnly, Allow: c.Allow}),
	}
}

// connect connects to the origin by d. address is the host and port of its URL.
func (o *Origin) connect(ctx context.Context, d *net.Dialer, address string) (net.Conn, error) {
	if o.SRV && o.Address == "" {
		return o.connectSRV(ctx, d)
	}
	return netguard.Dial(ctx, d, "tcp", cmp.Or(o.Address, address))
}

// connectSRV connects to the first host of the SRV records that takes the connection, in the order of RFC 2782. The timeout of d
// is for all of them together, and so is the bound of the addresses that are tried.
func (o *Origin) connectSRV(ctx context.Context, d *net.Dialer) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.Timeout, errConnectTimeout)
	defer cancel()
	by := d.Resolver
	if by == nil {
		by = net.DefaultResolver
	}
	_, records, err := by.LookupSRV(ctx, "", "", o.Host)
	if len(records) == 0 {
		return nil, cmp.Or[error](err, &net.DNSError{Err: "no such host", Name: o.Host, IsNotFound: true})
	}
	ctx, end := netguard.Bounded(ctx)
	defer end()
	for _, r := range records[:min(len(records), netguard.MaxAddresses)] {
		var conn net.Conn
		if conn, err = netguard.Dial(ctx, d, "tcp", net.JoinHostPort(r.Target, strconv.Itoa(int(r.Port)))); err == nil || ctx.Err() != nil {
			return conn, err
		}
	}
	return nil, err
}

// lifetime returns how long a connection may be used for new requests, so that it is not used after age. It
// varies by up to a tenth, so that connections that were made together do not end together.
func lifetime(age time.Duration) time.Duration {
	return age - rand.N(age/10+1)
}
