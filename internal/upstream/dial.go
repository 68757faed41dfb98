package upstream

import (
	"cmp"
	"math/rand/v2"
	"net"
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

// lifetime returns how long a connection may be used for new requests, so that it is not used after age. It
// varies by up to a tenth, so that connections that were made together do not end together.
func lifetime(age time.Duration) time.Duration {
	return age - rand.N(age/10+1)
}
