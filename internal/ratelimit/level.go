package ratelimit

// Level is where one limit stands. Route and Key are the identifiers that it is of,
// or zero.
type Level struct {
	Status
	Route, Key [16]byte
}

// StatusOf returns where one limit stands, as Peek does.
func StatusOf(now Instant, l Limit) Status {
	var standing [1]Status
	Peek(now, []Limit{l}, standing[:])
	return standing[0]
}

// EachLevel calls f for each bucket that is not full, in no certain order. Decisions
// go on meanwhile.
func (b *Buckets) EachLevel(now Instant, f func(k [16]byte, s Status)) {
	for i := range b.shards {
		b.shards[i].eachLevel(now, f)
	}
}

func (s *bucketShard) eachLevel(now Instant, f func(k [16]byte, s Status)) {
	s.mu.Lock()
	g := s.current.Load()
	all := []*generation{g}
	for o := g.older; o != nil; o = o.older {
		all = append(all, o)
	}
	s.mu.Unlock()
	at := g.params.unitsAt(now.Mono)
	for _, o := range all {
		o.buckets.each(func(n *node[Bucket]) {
			word := n.value.state.Load()
			if word == closed {
				return
			}
			if o != g {
				word = convert(o.params, g.params, word, now)
			}
			if word <= at {
				return
			}
			standing := Status{Scope: RouteScope}
			g.params.fillStatus(&standing, word, at, now.Wall)
			f(n.key, standing)
		})
	}
}

// EachLevel calls f for each key of which the day has a count, in no certain order.
func (d *Dailies) EachLevel(now Instant, f func(k [16]byte, s Status)) {
	day := dayOf(now.Wall)
	tell := func(k [16]byte, used int64) {
		standing := Status{Scope: DailyScope}
		packDaily(day, used, 0).fillStatus(&standing, uint64(d.limit.capacity.Load()), now, day)
		f(k, standing)
	}
	// What is evicted between the two looks is told twice rather than not at all,
	// hence seen.
	seen := map[[16]byte]bool{}
	for i := range d.shards {
		d.shards[i].current.Load().each(func(n *node[Daily]) {
			if w := n.value.load(); w != closedDaily && w.isOf(day) && w.used() > 0 {
				seen[n.key] = true
				tell(n.key, w.used())
			}
		})
	}
	d.limit.mu.Lock()
	rest := map[[16]byte]int64{}
	if d.limit.day == day {
		for k, used := range d.limit.known {
			if !seen[k] && used > 0 {
				rest[k] = used
			}
		}
	}
	d.limit.mu.Unlock()
	for k, used := range rest {
		tell(k, used)
	}
}
