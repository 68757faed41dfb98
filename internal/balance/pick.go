package balance

import (
	"math"
	"time"
)

// MaxAttempts is how many attempts a request has at most.
const MaxAttempts = 6

// Attempts is one request with its attempts. The caller keeps it until Finish, and may use it again. It is not safe for
// concurrent use.
type Attempts struct {
	// Value is what the policy Hash chooses by, as HashValue returns it, if HasValue is set.
	Value    uint64
	HasValue bool
	// Small is set if the request may be the only one at a half-open address: GET, HEAD, OPTIONS, PUT or DELETE with at most
	// 64 KiB of body.
	Small bool
	// Caller identifies the caller: failures of one caller alone eject no address for timeouts and statuses. It must be set before
	// End and Answer of an attempt that has failed.
	Caller uint64

	upstream *Upstream
	second   int64 // of the budget, in which the request began
	tried    [MaxAttempts]*Target
	count    int

	target   *Target // of the attempt in flight
	phase    phase   // of its address when it began
	trial    bool    // it holds the address's trying
	answered bool    // Answer was called
	failed   bool    // for Answer's result
	counted  bool    // Answer's result counts towards an ejection
	without  bool    // no target took part
	seen     *view   // by which the last Pick has chosen
}

// Begin begins a request to an upstream. Finish must follow.
func (a *Attempts) Begin(now time.Duration, u *Upstream) {
	a.upstream, a.count, a.target, a.tried, a.without, a.seen = u, 0, nil, [MaxAttempts]*Target{}, false, nil
	a.second = u.budget.begin(now)
}

// Pick begins an attempt and returns its target. End must follow. It returns nil if every target drains, or there is none.
// A target that was tried is not chosen again while another takes part.
func (a *Attempts) Pick(now time.Duration) *Target {
	u := a.upstream
	v := u.view(now)
	t := a.choose(now, v)
	for t == nil || !a.start(t) {
		a.seen = v
		// There is no target, or t leaves: the table may be changing.
		if v = u.changed(now, v); v == nil {
			return nil
		}
		t = a.search(now, v)
	}
	a.seen = v
	if a.count < MaxAttempts {
		a.tried[a.count] = t
	}
	a.count++
	if a.without = v.allUnhealthy; a.without {
		u.without.Add(1)
	}
	return t
}

// Prefer begins an attempt at a target that an earlier attempt of the caller had, whatever its state, and reports whether it
// could. It could not if the target leaves, or is another upstream's. End must follow if it could.
func (a *Attempts) Prefer(t *Target) bool {
	if t.upstream != a.upstream || !a.start(t) {
		return false
	}
	a.tried[a.count], a.without, a.seen = t, false, nil
	a.count++
	return true
}

// changed waits for a change of the table that has begun, and returns the view after it. It returns nil if there is none, and
// the view before has no target.
func (u *Upstream) changed(now time.Duration, before *view) *view {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.table == before.table && u.table.active == 0 {
		return nil
	}
	return u.rebuild(now)
}

// start begins the attempt at t, unless t leaves. An address that begins to leave with nothing in flight gets nothing more,
// since both sides write before they read.
func (a *Attempts) start(t *Target) bool {
	t.begun.Add(1)
	if t.leaves.Load() {
		t.ended.Add(1)
		a.stopTrying(t)
		return false
	}
	t.address.inFlight.Add(1)
	a.target, a.answered, a.failed, a.counted = t, false, false, false
	a.phase = phase(t.address.phase.Load())
	return true
}

// try takes the turn at a half-open address.
func (a *Attempts) try(t *Target) bool {
	if !t.address.trying.CompareAndSwap(false, true) {
		return false
	}
	a.trial = true
	if phase(t.address.phase.Load()).state() != halfOpen {
		a.stopTrying(t)
		return false
	}
	return true
}

func (a *Attempts) stopTrying(t *Target) {
	if a.trial {
		a.trial = false
		t.address.trying.Store(false)
	}
}

// choose chooses a target by the view and the policy. It returns nil if there is none.
func (a *Attempts) choose(now time.Duration, v *view) *Target {
	if v.open == 0 {
		return a.search(now, v)
	}
	random, n := a.upstream.fleet.random, len(v.targets)
	byValue := v.hashes != nil && a.HasValue
	var e *entry
	switch {
	case a.count > 0:
		if e = a.another(now, v, byValue, random); e == nil {
			return a.search(now, v)
		}
	case byValue:
		best, trial := v.rendezvous(a.Value)
		if trial != nil && a.Small && a.try(trial.Target) {
			return trial.Target
		}
		e = best
	case v.open < n && a.Small:
		if i := v.find(below(random(), v.total(n)), n); i >= v.open && a.try(v.targets[i].Target) {
			return v.targets[i].Target
		}
		e = v.byPolicy(now, random)
	default:
		e = v.byPolicy(now, random)
	}
	if v.allUnhealthy || e.level(now, v.heeds()) < halfOpened {
		return e.Target
	}
	return a.search(now, v)
}

// another chooses one of the targets that take part without restriction and were not tried. It may not find one.
func (a *Attempts) another(now time.Duration, v *view, byValue bool, random func() uint64) *entry {
	if byValue || a.count >= v.open {
		return nil
	}
	for range 4 {
		if e := v.byPolicy(now, random); !a.hasTried(e.Target) {
			return e
		}
	}
	return nil
}

func (a *Attempts) hasTried(t *Target) bool {
	for i := range min(a.count, MaxAttempts) {
		if a.tried[i] == t {
			return true
		}
	}
	return false
}

// byPolicy chooses one of the targets that take part without restriction.
func (v *view) byPolicy(now time.Duration, random func() uint64) *entry {
	switch {
	case v.open == 1:
		return &v.targets[0]
	case v.rotation != nil:
		return &v.targets[v.rotation.next()]
	default:
		return v.leastRequests(now, random(), random())
	}
}

// leastRequests draws two different targets by weight and returns the one with fewer requests in flight for its weight, or
// else the first (power of two choices).
func (v *view) leastRequests(now time.Duration, random1, random2 uint64) *entry {
	sum := v.total(v.open)
	i := v.find(below(random1, sum), v.open)
	first := &v.targets[i]
	point := below(random2, sum-first.weight)
	if point >= v.sums[i]-first.weight {
		point += first.weight // the first is not drawn again
	}
	second := &v.targets[v.find(point, v.open)]
	if second.less(now, first) {
		return second
	}
	return first
}

// less reports whether t has fewer requests in flight for its weight than other.
func (t *entry) less(now time.Duration, other *entry) bool {
	return uint64(max(0, t.address.load(now)))*other.weight < uint64(max(0, other.address.load(now)))*t.weight
}

// rendezvous returns the target of a value by weighted rendezvous hashing, so that only the callers of a lost target move.
// If that is half-open, it is trial, and best is the target without those.
func (v *view) rendezvous(value uint64) (best, trial *entry) {
	lowest := math.Inf(1)
	i := v.lowest(value, &lowest, 0, v.open)
	if j := v.lowest(value, &lowest, v.open, len(v.targets)); j >= 0 {
		trial = &v.targets[j]
	}
	return &v.targets[i], trial
}

// lowest returns which of a range of targets has the lowest score for a value, if that is below score, which it sets to it.
// Otherwise it returns -1.
func (v *view) lowest(value uint64, score *float64, from, to int) int {
	best := -1
	if v.equal != 0 { // the order of the scores is that of the random numbers
		var most uint64
		for i, h := range v.hashes[from:to] {
			if x := mix(value ^ h); x >= most {
				best, most = from+i, x
			}
		}
		if best < 0 || !beats(score, v.equal, most) {
			return -1
		}
		return best
	}
	for i, h := range v.hashes[from:to] {
		if beats(score, v.targets[from+i].weight, mix(value^h)) {
			best = from + i
		}
	}
	return best
}

// beats reports whether the score of a target of a weight is below lowest, for a random number, and sets lowest to it. The
// score is exponentially distributed with the weight as its rate, so the lowest of several is each target's by its weight.
func beats(lowest *float64, weight, random uint64) bool {
	rate := float64(weight)
	u := (float64(random>>11) + 0.5) / (1 << 53)
	if 1-u >= *lowest*rate { // -ln(u) is at least 1-u
		return false
	}
	score := -math.Log(u) / rate
	if score >= *lowest {
		return false
	}
	*lowest = score
	return true
}

// search chooses from the present state of every target of the view's table: for retries, and if what was chosen does not
// take part any more. It returns nil if all drain. In this order it takes targets that take part, half-open ones that are
// free, those of them that were tried, and then the rest; with a value by rendezvous, otherwise by least requests.
func (a *Attempts) search(now time.Duration, v *view) *Target {
	small := a.Small
	for {
		first, second, isTrial := a.best(now, v, small)
		switch {
		case first.Target == nil:
			return nil
		case isTrial:
			if a.try(first.Target) {
				return first.Target
			}
			small = false // another was faster
		case second.Target != nil && second.less(now, &first):
			return second.Target
		default:
			return first.Target
		}
	}
}

// best draws two targets of the best rank. second is empty if there is only one, or the policy chooses by a value.
func (a *Attempts) best(now time.Duration, v *view, small bool) (first, second entry, isTrial bool) {
	const none = 2 * levels
	bestRank := none
	byValue := v.hashes != nil && a.HasValue
	heeds := v.heeds()
	var low1, low2 float64
	for i := range v.table.targets {
		e := v.table.targets[i]
		rank, trial := a.rank(&e, e.level(now, heeds), small)
		if rank > bestRank || rank == none {
			continue
		}
		if rank < bestRank {
			bestRank, isTrial, first, second = rank, trial, entry{}, entry{}
			low1, low2 = math.Inf(1), math.Inf(1)
		}
		e.weight = e.weight / fullWeight * grown(now, e.warmFrom())
		if byValue {
			if beats(&low1, e.weight, mix(a.Value^e.address.hash)) {
				first = e
			}
			continue
		}
		before, random := low1, a.upstream.fleet.random()
		switch {
		case beats(&low1, e.weight, random):
			first, second, low2 = e, first, before
		case beats(&low2, e.weight, random):
			second = e
		}
	}
	return first, second, isTrial
}

// rank returns the rank of a target in a search: first those that take part, then those of them that were tried, then the
// rest. trial is set if the target may only be tried.
func (a *Attempts) rank(e *entry, l level, small bool) (rank int, trial bool) {
	if l == drains {
		return 2 * levels, false
	}
	wasTried := a.hasTried(e.Target)
	if l == halfOpened {
		if trial = small && !wasTried && !e.address.trying.Load(); !trial {
			l = excluded
		}
	}
	rank = int(l)
	switch {
	case l == excluded && !wasTried:
		rank = 2 * int(excluded)
	case l == excluded:
		rank = 2*int(excluded) + 1
	case wasTried:
		rank += int(excluded)
	}
	return rank, trial
}

// Answer notes the head of a response. It is not called for a response that comes with its end, nor for informational ones.
func (a *Attempts) Answer(now time.Duration, r Result) {
	a.answered, a.failed = true, r.Failed()
	a.counted = a.note(now, r, false)
	a.stopTrying(a.target)
}

// End ends the attempt with its result. After Answer, that is OK, Canceled, Reset or Timeout.
func (a *Attempts) End(now time.Duration, r Result) {
	t := a.target
	if !a.counted { // an attempt counts once
		a.note(now, r, true)
	}
	if a.failed || r.Failed() {
		t.address.failed.add(now)
	}
	a.stopTrying(t)
	t.address.inFlight.Add(-1)
	t.ended.Add(1)
	a.target = nil
}

// note passes a result to the address. It reports whether that counts towards an ejection.
func (a *Attempts) note(now time.Duration, r Result, whole bool) (counts bool) {
	t, e := a.target, &a.upstream.current.Load().table.cfg.Ejection
	if r.Failed() {
		t.failures[r].Add(1)
	}
	switch {
	case r == Canceled:
	case r == NotAllowed:
		t.address.refuse(now)
	case r.Failed() && e.On.Has(r) && !e.off():
		a.upstream.failed(now, t.address, e, a.phase, r, a.Caller, a.answered && whole)
		return true
	case !r.soft() && r != OK, r == Timeout: // uncounted, and no success either
	default:
		t.address.succeeded(now, a.phase, whole)
	}
	return false
}

// failed notes a failure of an address, which may eject it.
func (u *Upstream) failed(now time.Duration, a *Address, e *Ejection, p phase, r Result, caller uint64, answered bool) {
	ejects, bounded := a.fail(e, p, r, caller, answered)
	if !ejects {
		return
	}
	if bounded {
		// Two ejections at once could exceed max_percent. A later failure ejects if this one does not.
		if !u.ejecting.TryLock() {
			return
		}
		defer u.ejecting.Unlock()
		if t := u.current.Load().table; t.ejected(a) >= e.maxEjected(t.active) {
			return
		}
	}
	a.eject(now, e, p, r)
}

// ejected returns how many targets are ejected or half-open, without those at a.
func (t *table) ejected(a *Address) (n int) {
	for i := range t.targets {
		if of := t.targets[i].address; of != a && !t.targets[i].leaves.Load() && phase(of.phase.Load()).state() != open {
			n++
		}
	}
	return n
}

// Retry reports whether the request may have one more attempt: the upstream's `attempts` and its budget allow it (section
// 4). It counts as a retry then. Whether the request may be sent again, the caller knows; see Upstream.RetriesOn.
func (a *Attempts) Retry(now time.Duration) bool {
	r := &a.upstream.current.Load().table.cfg.Retries
	return a.count <= r.Attempts && a.count < MaxAttempts && a.upstream.budget.retry(now, r.BudgetPercent)
}

// RetriesOn reports whether `on` of `retries` names the result.
func (u *Upstream) RetriesOn(r Result) bool { return u.current.Load().table.cfg.Retries.On.Has(r) }

// Finish ends the request.
func (a *Attempts) Finish(time.Duration) {
	a.upstream.budget.end(a.second)
	a.upstream, a.seen = nil, nil
}

// Target returns the target of the attempt in flight, or nil.
func (a *Attempts) Target() *Target { return a.target }

// Count returns how many attempts have begun.
func (a *Attempts) Count() int { return a.count }

// WithoutHealthy reports whether the present or last attempt was chosen while no target took part.
func (a *Attempts) WithoutHealthy() bool { return a.without }
