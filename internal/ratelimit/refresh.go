package ratelimit

import "context"

// maxRefresh bounds the number of buckets whose levels one call of Refresh asks for.
const maxRefresh = 20_000

// Refresh asks the limit store for the present levels of buckets, so that their statuses show them,
// and charges nothing. Without an answer in time, and beyond 20,000 buckets, the statuses show what
// the node has heard last.
func (s *Sharing) Refresh(ctx context.Context, buckets []*Bucket) {
	if s.cfg.Store == nil {
		return
	}
	var leases []*Lease
	for _, b := range buckets[:min(len(buckets), maxRefresh)] {
		if b.lease != nil && !b.lease.divided.Load() {
			leases = append(leases, b.lease)
		}
	}
	for len(leases) > 0 && !s.Lost() && ctx.Err() == nil {
		n := min(len(leases), maxBatch)
		s.look(ctx, leases[:n])
		leases = leases[n:]
	}
}

// look asks for the levels of leases.
func (s *Sharing) look(ctx context.Context, leases []*Lease) {
	ctx, cancel := context.WithTimeout(ctx, tripTimeout)
	defer cancel()
	now, version := s.cfg.Now(), s.cfg.Version()
	questions := make([]Question, len(leases))
	for i, e := range leases {
		questions[i].Takes = []Take{e.params.take(e.name.String(), 1, version)}
	}
	if s.cfg.Store.Ask(ctx, questions) != nil { // the answered questions are useful nevertheless
		s.log.Debug("the limit store did not tell all levels")
	}
	for i, e := range leases {
		if t := &questions[i].Takes[0]; questions[i].Answered && !t.Behind {
			e.hear(e.params.unitsAt(now.Mono) + e.params.usedUnits(t))
		}
	}
}

// hear sets the state of the bucket to what the store has said.
func (e *Lease) hear(word uint64) {
	for {
		if old := e.bucket.state.Load(); old == closed || e.bucket.state.CompareAndSwap(old, word) {
			return
		}
	}
}

// Buckets calls yield for each bucket of the set that this node knows.
func (b *Buckets) Buckets(yield func(*Bucket)) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		g := s.current.Load()
		s.mu.Unlock()
		if g == nil {
			continue
		}
		g.buckets.each(func(n *node[Bucket]) { yield(&n.value) })
	}
}
