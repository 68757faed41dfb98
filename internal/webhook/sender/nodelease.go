package sender

import (
	"context"
	"sync"
	"time"
)

// NodeLease is the right of this node to send, which ends by itself when the node cannot renew it
// (package cluster). It must be safe for concurrent use, and must not block.
type NodeLease interface {
	// Claimant returns a name for the claims that are made under the present lease, or "" without a
	// lease. No other lease of any node has the same name. The name begins with a letter or a digit
	// and has no slash.
	Claimant() string
}

// Peers is a Queue that several nodes share.
type Peers interface {
	// ReleaseEnded ends up to limit leases of deliveries whose claimant (NodeLease.Claimant) has no
	// lease any more. These deliveries are due again, as before their claim. Deliveries of
	// claimants whose leases have not ended are left alone. It returns how many it released.
	ReleaseEnded(ctx context.Context, limit int) (released int, err error)
}

const (
	// watchLease is the time between two looks at the node's lease. Other nodes take over the
	// deliveries of an ended lease after a margin that is several times as long (lease.Expiry).
	watchLease = 50 * time.Millisecond
	// releaseRest is the time between two looks for the deliveries of ended leases, and
	// releaseBatch how many are released in one statement.
	releaseRest  = 2 * time.Second
	releaseBatch = 1000
)

// claimant gives claims their name, and ends attempts with the lease under which their deliveries were
// claimed.
type claimant struct {
	lease NodeLease // nil if this node shares its queue with no other
	fixed string    // the name without a NodeLease

	mu     sync.Mutex
	name   string          // of the lease that ctx belongs to
	ctx    context.Context // ends with the lease
	cancel context.CancelFunc
}

// now returns the name for claims at this moment. ok is false if this node may not send.
func (c *claimant) now() (name string, ok bool) {
	if c.lease == nil {
		return c.fixed, true
	}
	name = c.lease.Claimant()
	return name, name != ""
}

// is reports whether this node may send deliveries that were claimed under the given name.
func (c *claimant) is(name string) bool {
	now, ok := c.now()
	return ok && now == name
}

// refresh ends the attempts of a lease that has ended. It reports whether the lease has changed
// since the last call.
func (c *claimant) refresh() (changed bool) {
	name, _ := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if name == c.name {
		return false
	}
	if c.cancel != nil {
		c.cancel()
		c.cancel = nil
	}
	if c.name = name; name != "" {
		c.ctx, c.cancel = context.WithCancel(context.Background())
	}
	return true
}

// attempt returns a context for an attempt to send a delivery that was claimed under the given name.
// It ends with ctx and with the lease.
func (c *claimant) attempt(ctx context.Context, name string) (attempt context.Context, cancel func()) {
	if c.lease == nil {
		return ctx, func() {}
	}
	c.refresh()
	attempt, end := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.name != name || c.cancel == nil {
		end()
		return attempt, end
	}
	stop := context.AfterFunc(c.ctx, end)
	return attempt, func() { stop(); end() }
}

// watchClaimant follows the node's lease until ctx ends. When it ends, what is queued is handed back and
// attempts under way are interrupted, so that other nodes can take the deliveries over.
func (s *Sender) watchClaimant(ctx context.Context) {
	tick := time.NewTicker(watchLease)
	defer tick.Stop()
	for {
		if s.claimant.refresh() {
			s.dispatcher.recallAll()
			s.Wake()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// releaseEnded releases the deliveries of nodes whose leases have ended, if it is time to. Released
// deliveries may have been due before the last look, so a scan follows.
func (s *Sender) releaseEnded(ctx context.Context, f *finder, now time.Time) error {
	if s.cfg.Peers == nil || now.Before(f.releaseAt) && f.releaseAt.Sub(now) <= releaseRest { // otherwise the clock was set back
		return nil
	}
	n, err := s.cfg.Peers.ReleaseEnded(ctx, releaseBatch)
	if err != nil {
		return err
	}
	f.releaseAt = now.Add(releaseRest)
	if n == 0 {
		return nil
	}
	if n >= releaseBatch {
		f.releaseAt = now
	}
	if !f.scanning {
		f.scanAt = now
	}
	f.again = f.scanning
	s.stats.takenOver.Add(int64(n))
	s.cfg.Log.InfoContext(ctx, "released the webhook deliveries of nodes whose lease has ended", "count", n)
	return nil
}
