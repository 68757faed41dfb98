package upstream

// Pool returns the pool of the connection.
func (c *H1Conn) Pool() *H1Pool { return c.pool }

// Hold is called in place of Release by an owner that keeps the connection for its next request.
func (c *H1Conn) Hold() {
	c.heldAt.Store(c.pool.owner.tick.Load())
	c.reused = true
	c.unwatch()
}

// Ready reports whether a connection on hold can carry another request. If not, the owner discards it.
func (c *H1Conn) Ready() bool { return !c.old() && !c.Stale() }

// Overdue reports whether a connection on hold was held for too long, is too old, or is not needed by its pool any
// more. Not only the owner may call it.
func (c *H1Conn) Overdue() bool {
	p := c.pool
	return p.draining.Load() || c.old() || p.owner.tick.Load()-c.heldAt.Load() >= p.idle
}
