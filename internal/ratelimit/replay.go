package ratelimit

// replayRange is how many requests a replayed daily cap reserves, which is more than it ever needs.
const replayRange = 1<<leftBits - 1

// Replay is a single limit, full at first, with a clock that the caller sets. It decides
// like Decide, for simulations. It is not safe for concurrent use.
type Replay struct {
	config Config
	params Params
	shared replayState
	keys   map[[16]byte]*replayState
}

// replayState is the state of the limit, for all keys or for one.
type replayState struct {
	bucket Bucket
	daily  *Daily
}

// NewReplay returns a Replay of a configuration, which must not be the zero value. The
// daily cap starts at 0.
func NewReplay(c Config) *Replay {
	r := &Replay{config: c, keys: map[[16]byte]*replayState{}}
	if c.HasBucket() {
		r.params = Compile(c)
	}
	r.start(&r.shared)
	return r
}

func (r *Replay) start(s *replayState) {
	if r.config.Daily.IsZero() {
		return
	}
	limit := &dailyLimit{day: -1}
	limit.capacity.Store(r.config.Daily.Count)
	s.daily = &Daily{limit: limit}
}

// of returns the state for the key whose bucket is identified by bucket.
func (r *Replay) of(bucket [16]byte) *replayState {
	if r.config.Per != PerKey {
		return &r.shared
	}
	s := r.keys[bucket]
	if s == nil {
		s = new(replayState)
		r.start(s)
		r.keys[bucket] = s
	}
	return s
}

// Keys returns the number of keys that have a bucket or daily count of their own.
func (r *Replay) Keys() int { return len(r.keys) }

// Admit decides one request of the key whose bucket is identified by bucket. now must not
// decrease.
func (r *Replay) Admit(now Instant, bucket [16]byte) bool {
	s := r.of(bucket)
	var c Charge
	if r.config.HasBucket() {
		c.Add(Limit{Scope: RouteScope, Params: &r.params, Bucket: &s.bucket}, 1)
	}
	if s.daily != nil {
		s.reserve(dayOf(now.Wall))
		c.Add(Limit{Scope: DailyScope, Daily: s.daily}, 1)
	}
	return (&Limiter{}).Decide(now, &c) == Admitted
}

// reserve does what a Reserver does: a new day starts at 0.
func (s *replayState) reserve(day int64) {
	w, used := s.daily.load(), int64(0)
	if s.daily.limit.day == day {
		used = w.used()
	}
	s.daily.limit.day = day
	s.daily.word.Store(uint64(packDaily(day, used, replayRange)))
}

// Wait returns for how many nanoseconds from now a request of the key whose bucket is
// identified by bucket would be refused, or 0 if it would be admitted.
func (r *Replay) Wait(now Instant, bucket [16]byte) int64 {
	s, wait := r.of(bucket), int64(0)
	if r.config.HasBucket() {
		var status Status
		wait = max(wait, r.params.fillRefused(&status, s.bucket.state.Load(), r.params.unitsAt(now.Mono), r.params.cost, now.Wall))
	}
	if s.daily != nil {
		day := dayOf(now.Wall)
		if s.reserve(day); s.daily.load().used() >= r.config.Daily.Count {
			wait = max(wait, (day+1)*dayLength-now.Wall)
		}
	}
	return wait
}

// AdmitAll admits n requests of the key whose bucket is identified by bucket, if none of
// them would be refused. Request i arrives at now plus i/n of within, in nanoseconds; all
// must be on the same day. Otherwise AdmitAll changes nothing and reports false. Its cost
// does not depend on n.
func (r *Replay) AdmitAll(now Instant, n, within int64, bucket [16]byte) bool {
	s := r.of(bucket)
	day := dayOf(now.Wall)
	if s.daily != nil {
		s.reserve(day)
		if s.daily.load().used()+n > r.config.Daily.Count {
			return false
		}
	}
	if r.config.HasBucket() {
		word, ok := r.params.admitEvenly(s.bucket.state.Load(), now.Mono, n, within)
		if !ok {
			return false
		}
		s.bucket.state.Store(word)
	}
	if s.daily != nil {
		s.daily.word.Store(uint64(packDaily(day, s.daily.load().used()+n, replayRange)))
	}
	return true
}

// admitEvenly returns the state of a bucket in the state word after n requests that arrive
// evenly from mono on. ok is false if a request would be refused, or might be.
//
// Let g(i) be the units gained until request i. If requests arrive faster than the bucket
// refills, by more than rounding can shift g(i), the bucket is not full again before the
// last request, which is the first that could be refused. If they arrive slower, only the first
// request could be refused, and after each request the state is g(i) plus one cost, or what the
// initial state left.
func (p *Params) admitEvenly(word uint64, mono, n, within int64) (after uint64, ok bool) {
	// The gain is below 16 units per nanosecond, and each time and gain is rounded
	// by less than one.
	const rounding = 18
	first, last := p.unitsAt(mono), p.unitsAt(mono+(n-1)*within/n)
	if uint64(n) >= (maxWord-max(word, last))/p.cost { // the state would not fit a word
		return 0, false
	}
	start, gained, steps := max(word, first), last-first, uint64(n-1)
	switch {
	case gained+rounding+steps <= steps*p.cost:
		return start + (steps+1)*p.cost, p.fits(start+steps*p.cost-last+rounding, p.cost)
	case gained > steps*(p.cost+rounding):
		return max(word+(steps+1)*p.cost, last+p.cost), p.fits(start-first, p.cost)
	case steps == 0:
		return start + p.cost, p.fits(start-first, p.cost)
	default:
		return 0, false
	}
}
