package upstream

import (
	"context"
	"crypto/tls"
	"time"
)

// SecureConn is a TLS connection for one HTTP/1.1 request.
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

// Secure makes a TLS connection for one HTTP/1.1 request, even if the server also speaks HTTP/2.
// The origin's scheme must be https. Secure waits for a slot until the deadline, and gives up when
// ctx ends. The errors are those of Open, except ErrNoHTTP2 and ErrNoConnect.
func (p *H2Pool) Secure(ctx context.Context, deadline time.Time) (*SecureConn, error) {
	return establish(ctx, p, deadline, func(ctx context.Context, slot *H1Conn, address string) (*SecureConn, error) {
		cfg := p.tls.Clone()
		cfg.NextProtos = []string{"http/1.1"}
		conn, err := handshake(ctx, slot.conn, address, cfg)
		if err != nil {
			return nil, err
		}
		return &SecureConn{Conn: conn, slot: slot}, nil
	})
}
