package ratelimit

import "github.com/keygate/keygate/internal/clientip"

// Level is the Status of one limit, with the identifiers of the route, key and owner that it
// belongs to, or zeros, and of the addresses that it counts, or the zero Group.
type Level struct {
	Status
	Route, Key, Owner [16]byte
	Address           clientip.Group
}

// StatusOf returns the status of one limit, as Limiter.Peek does.
func StatusOf(now Instant, l Limit) Status {
	var c Charge
	c.Add(l, 1)
	(&Limiter{}).Peek(now, &c)
	return *c.Status(0)
}

// EachLevel calls f for each bucket that is not full, in no particular order. It does not
// block decisions.
func (b *Buckets) EachLevel(now Instant, f func(k [16]byte, s Status)) {
	for i := range b.shards {
		for _, k := range b.shards[i].eachLevel(now, f) {
			b.shards[i].mu.Lock()
			p, one := b.existing(&b.shards[i], k)
			b.shards[i].mu.Unlock()
			if one == nil {
				continue // it was full, and is dropped
			}
			if s := StatusOf(now, Limit{Scope: RouteScope, Params: p, Bucket: one}); s.ResetIn > 0 {
				f(k, s)
			}
		}
	}
}

// eachLevel calls f for each bucket of this node alone, and returns the keys of shared buckets.
func (s *bucketShard) eachLevel(now Instant, f func(k [16]byte, s Status)) (shared [][16]byte) {
	s.mu.Lock()
	g := s.current.Load()
	if g == nil {
		s.mu.Unlock()
		return nil
	}
	all := []*generation{g}
	for o := g.older; o != nil; o = o.older {
		all = append(all, o)
	}
	s.mu.Unlock()
	at := g.params.unitsAt(now.Mono)
	for i, o := range all {
		o.buckets.each(func(n *node[Bucket]) {
			word := n.value.state.Load()
			if word == closed {
				return
			}
			if n.value.lease != nil {
				shared = append(shared, n.key)
				return
			}
			for j := i; j > 0; j-- { // through every change since
				word = convert(all[j].params, all[j-1].params, word, all[j-1].since)
			}
			if word <= at {
				return
			}
			status := Status{Scope: RouteScope}
			g.params.fillStatus(&status, word, at, now.Wall)
			f(n.key, status)
		})
	}
	return shared
}

// StatusOf returns the status of the own cap of the key k. It creates no count.
func (d *Dailies) StatusOf(now Instant, k [16]byte, capacity int64) Status {
	day := dayOf(now.Wall)
	status := Status{Scope: KeyDailyScope}
	packDaily(day, d.used(k, day), 0).fillStatus(&status, uint64(capacity), now.Wall, day)
	return status
}

// EachLevel calls f for each key that has used any of today's cap, in no particular order.
func (d *Dailies) EachLevel(now Instant, f func(k [16]byte, s Status)) {
	day := dayOf(now.Wall)
	emit := func(k [16]byte, used int64) {
		status := Status{Scope: DailyScope}
		packDaily(day, used, 0).fillStatus(&status, uint64(d.limit.capacity.Load()), now.Wall, day)
		f(k, status)
	}
	// A count that is evicted between the two loops is found by both rather than by
	// neither; seen removes the duplicate.
	seen := map[[16]byte]bool{}
	for i := range d.shards {
		d.shards[i].current.Load().each(func(n *node[Daily]) {
			if w := n.value.load(); w != closedDaily && w.isOf(day) && w.used() > 0 {
				seen[n.key] = true
				emit(n.key, w.used())
			}
		})
	}
	d.limit.mu.Lock()
	rest := map[[16]byte]int64{}
	if d.limit.day == day {
		for k, c := range d.limit.known {
			if !seen[k] && c.used > 0 {
				rest[k] = c.used
			}
		}
	}
	d.limit.mu.Unlock()
	for k, used := range rest {
		emit(k, used)
	}
}
