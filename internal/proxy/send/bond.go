package send

import (
	"sync/atomic"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream"
)

// Bond is the connection to an upstream that is bound to a client's connection, because requests of that
// client have authenticated it (contract, 4.4): no request of another client uses it, and both close
// together. A client's connection has at most one. Its zero value has none. It is safe for concurrent use.
type Bond struct {
	conn atomic.Pointer[upstream.H1Conn]
	to   atomic.Pointer[string]         // the name of its upstream
	at   atomic.Pointer[balance.Target] // where the connection that was bound last leads; nil with one target
}

// Has reports whether the bound connection is one of p.
func (b *Bond) Has(p *upstream.H1Pool) bool {
	up := b.conn.Load()
	return up != nil && up.Pool() == p
}

// Any reports whether a connection is bound.
func (b *Bond) Any() bool { return b.conn.Load() != nil }

// Take returns the bound connection for a request, or nil if no usable connection of p is bound. The
// connection is not bound any more until Keep.
func (b *Bond) Take(p *upstream.H1Pool) *upstream.H1Conn {
	up := b.conn.Load()
	if up == nil || up.Pool() != p || !b.conn.CompareAndSwap(up, nil) {
		return nil
	}
	if !up.Ready() {
		up.Discard()
		return nil
	}
	return up
}

// At returns the target of the bound connection, or nil if none is bound, or its upstream has one target.
func (b *Bond) At() *balance.Target {
	if !b.Any() {
		return nil
	}
	return b.at.Load()
}

// Upstream returns the name of the upstream of the bound connection, or "" if none is bound.
func (b *Bond) Upstream() string {
	if !b.Any() {
		return ""
	}
	if name := b.to.Load(); name != nil {
		return *name
	}
	return ""
}

// Keep binds a connection to an upstream after a request, in place of another. at is its target, if the upstream has several.
func (b *Bond) Keep(up *upstream.H1Conn, name string, at *balance.Target) {
	up.Hold()
	b.to.Store(&name)
	b.at.Store(at)
	if before := b.conn.Swap(up); before != nil {
		before.Discard()
	}
}

// Close closes the bound connection.
func (b *Bond) Close() {
	if up := b.conn.Swap(nil); up != nil {
		up.Discard()
	}
}

// Broken reports whether the bound connection must end, and the client's with it: the upstream has closed
// it, or it is overdue.
func (b *Bond) Broken() (broken bool) {
	up := b.conn.Load()
	if up == nil {
		return false
	}
	if up.Overdue() {
		return true
	}
	_ = up.Raw().Control(func(fd uintptr) { broken = proxy.IsClosed(fd) }) // fails if its owner has closed it
	return broken
}

// boundBy reports whether a response binds the connection over which it has arrived.
func boundBy(head []byte, r *http1.Response) bool {
	if r.Status != http1.StatusUnauthorized {
		return false
	}
	for _, f := range r.Fields() {
		if f.ID == http1.WWWAuthenticate && proxy.ChallengesToBind(proxy.Text(f.Value.Of(head))) {
			return true
		}
	}
	return false
}
