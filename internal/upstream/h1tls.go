package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"time"
)

// SecureConn is a connection over TLS on which one request is sent by HTTP/1.1.
type SecureConn struct {
	*tls.Conn
	slot *H1Conn
}

// Close closes the connection and gives back its slot of the origin's limit.
func (c *SecureConn) Close() error {
	err := c.Conn.Close()
	c.slot.Discard()
	return err
}

// Secure makes a connection over TLS for one request by HTTP/1.1, whichever versions of HTTP the
// server speaks. The origin's scheme must be https. It waits for a slot until the deadline, and
// gives up when ctx ends. The errors are those of Open, without ErrNoHTTP2 and ErrNoConnect.
func (p *H2Pool) Secure(ctx context.Context, deadline time.Time) (*SecureConn, error) {
	slots, err := p.slots()
	if err != nil {
		return nil, err
	}
	slot, err := slots.Connect(ctx, deadline)
	if err != nil {
		return nil, err
	}
	cfg := p.tls.Clone()
	cfg.NextProtos = []string{"http/1.1"}
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(p.origin.ConnectTimeout, handshakeTimeout), errHandshakeTimeout)
	defer cancel()
	conn, err := handshake(ctx, slot.conn, slots.address, cfg)
	if err != nil {
		remote := slot.conn.RemoteAddr().String()
		slot.Discard()
		return nil, Unreachable(At(remote, err))
	}
	return &SecureConn{Conn: conn, slot: slot}, nil
}
