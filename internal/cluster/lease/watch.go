package lease

import "time"

// View is what a waiter reads of the store, in one read.
type View struct {
	// Server names the server and its timeline.
	Server string
	// Settled is set if it is known that no lease is in use that this server never heard of. Another
	// server may have granted such a lease, and lost it in a failover.
	Settled bool
	Rows    []Row
	// Unknown are the positions, of all that were asked about, that the change log does not contain.
	Unknown []Position
}

// Watch is the waiter's side of the protocol. Its methods must not overlap.
type Watch struct {
	ttl    time.Duration
	clock  func() Instant
	seen   map[string]sighting // by node
	server string
	calm   Instant // until then, leases may be in use that the server never heard of
	view   *View
}

// sighting is the newest grant of a row, and when it was first seen.
type sighting struct {
	Seen
	at Instant
}

// NewWatch returns a Watch that has seen nothing. ttl is the TTL of this node's own lease, and clock
// reads this node's clock.
func NewWatch(ttl time.Duration, clock func() Instant) *Watch {
	return &Watch{ttl: ttl, clock: clock, seen: map[string]sighting{}}
}

// Saw takes what was read. It must be called after the read, because it counts the time of new grants from now.
func (w *Watch) Saw(v *View) {
	now := w.clock()
	switch {
	case len(v.Unknown) > 0:
		w.disrupt(v, now)
	case v.Server != w.server && v.Settled:
		clear(w.seen)
	case v.Server != w.server:
		w.disrupt(v, now)
	}
	w.server, w.view = v.Server, v
	present := make(map[string]bool, len(v.Rows))
	for i := range v.Rows {
		r := &v.Rows[i]
		present[r.Node] = true
		if w.seen[r.Node].Seen != r.Seen() {
			w.seen[r.Node] = sighting{Seen: r.Seen(), at: now}
		}
	}
	for node := range w.seen {
		if !present[node] {
			delete(w.seen, node)
		}
	}
}

// disrupt begins all counts of time anew, and waits for leases that the server never heard of.
func (w *Watch) disrupt(v *View, now Instant) {
	clear(w.seen)
	longest := w.ttl
	for i := range v.Rows {
		longest = max(longest, v.Rows[i].TTL)
	}
	w.calm = now.Add(Expiry(longest))
}

// RanOut returns the grants that have run out and are to be ended. Only a successful write ends one.
func (w *Watch) RanOut() []Seen {
	if w.view == nil {
		return nil
	}
	var out []Seen
	now := w.clock()
	for i := range w.view.Rows {
		r := &w.view.Rows[i]
		if s := w.seen[r.Node]; r.State == Live && now.Sub(s.at) > Expiry(r.TTL) {
			out = append(out, s.Seen)
		}
	}
	return out
}

// Settled reports whether the server of the last read is to be recorded as settled, because the time
// of a lease has passed on it.
func (w *Watch) Settled() bool {
	return w.view != nil && !w.view.Settled && w.clock() >= w.calm
}

// Confirmed reports whether the last read, which must have begun after the change was committed, shows
// that no node admits without the change at p: every lease that has not ended is of a node that has
// applied it. have is the number of nodes that have applied the change, and of is the number of nodes
// with a lease.
func (w *Watch) Confirmed(p Position) (have, of int, ok bool) {
	if w.view == nil {
		return 0, 0, false
	}
	for i := range w.view.Rows {
		r := &w.view.Rows[i]
		if r.State != Live {
			continue
		}
		of++
		if r.Applied.Number >= p.Number {
			have++
		}
	}
	return have, of, have == of && w.clock() >= w.calm
}
