package balance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is what the addresses of two upstreams that share them must do, written as the contract says it (targets.md, sections
// 2, 3 and 6) and without regard for speed.
type model struct {
	now       time.Duration
	addresses map[string]*modelAddress
	ups       []*modelUpstream
	downs     int // ejections and unhealthy states
	backs     int
}

type modelAddress struct {
	name        string
	state       phase // open, ejected or halfOpen
	serial      int   // of the phase
	since       time.Duration
	until       time.Duration
	number      int
	hard        bool // the ejection is for failures to connect or resets
	failures    []modelFailure
	refused     time.Duration
	denied      bool // there was no success since
	returned    time.Duration
	checks      map[string]*modelCheck
	trial       *modelRequest
	inFlight    int
	lastFailure []time.Duration
}

type modelFailure struct {
	result Result
	caller uint64
	torn   bool
}

type modelCheck struct {
	settings Check
	state    verdict
	against  int // results in a row that contradict it
}

type modelUpstream struct {
	real *Upstream
	cfg  *Config
	gone map[string]int // what is in flight at targets that are gone
}

type modelRequest struct {
	real     *Attempts
	up       *modelUpstream
	tried    []string
	at       *modelAddress
	serial   int
	state    phase
	answered bool
	counted  bool
	failed   bool
}

// tick makes ejections that are over half-open.
func (m *model) tick() {
	for _, a := range m.addresses {
		if a.state == ejected && m.now >= a.until {
			m.enter(a, halfOpen)
		}
	}
}

func (m *model) enter(a *modelAddress, state phase) {
	a.state, a.since, a.failures = state, m.now, nil
	a.serial++
}

func (m *model) back(a *modelAddress) {
	a.returned = m.now
	m.enter(a, open)
	m.backs++
}

// classes returns the addresses of an upstream in the order in which a request may use them: those that take part, by tiers,
// then half-open ones, and the rest.
func (m *model) classes(u *modelUpstream) (tiers [4][]string, halves, rest []string) {
	for _, c := range u.cfg.Targets {
		a := m.addresses[c.Address]
		state := good
		if u.cfg.Check.ID != "" {
			state = m.check(a, u.cfg.Check).state
		}
		switch heeds := u.cfg.Ejection.Failures > 0; {
		case c.Drain:
		case state == bad, a.refused > m.now, heeds && a.state == ejected:
			rest = append(rest, a.name)
		case heeds && a.state == halfOpen:
			halves = append(halves, a.name)
		default:
			tier := 0
			if state == unknown {
				tier++
			}
			if c.Backup {
				tier += 2
			}
			tiers[tier] = append(tiers[tier], a.name)
		}
	}
	return tiers, halves, rest
}

func (m *model) check(a *modelAddress, c Check) *modelCheck {
	if a.checks[c.ID] == nil {
		a.checks[c.ID] = &modelCheck{settings: c}
	}
	return a.checks[c.ID]
}

// allowed returns what a request may pick next.
func (m *model) allowed(r *modelRequest) (names []string, allUnhealthy bool) {
	tiers, halves, rest := m.classes(r.up)
	untried := func(of []string) []string {
		return slices.DeleteFunc(slices.Clone(of), func(n string) bool { return slices.Contains(r.tried, n) })
	}
	none := true
	for _, t := range tiers {
		none = none && len(t) == 0
	}
	var free []string // half-open ones that the request may try
	for _, n := range halves {
		if r.real.Small && m.addresses[n].trial == nil {
			free = append(free, n)
		}
	}
	all := slices.Concat(rest, halves)
	if none {
		if left := untried(all); len(left) > 0 {
			return left, true
		}
		return all, true
	}
	first := true
	for i, t := range tiers {
		if left := untried(t); len(left) > 0 {
			if first && len(r.tried) == 0 {
				for _, n := range free {
					if i >= 2 || !isBackup(r.up, n) {
						left = append(left, n)
					}
				}
			}
			return left, false
		}
		first = first && len(t) == 0
	}
	if left := untried(free); len(left) > 0 {
		return left, false
	}
	for _, t := range tiers {
		if len(t) > 0 {
			return t, false
		}
	}
	panic("unreachable")
}

func isBackup(u *modelUpstream, name string) bool {
	i := slices.IndexFunc(u.cfg.Targets, func(c TargetConfig) bool { return c.Address == name })
	return u.cfg.Targets[i].Backup
}

// picked notes what a request has picked.
func (m *model) picked(r *modelRequest, name string, allUnhealthy bool) {
	a := m.addresses[name]
	if !allUnhealthy && a.state == halfOpen && r.up.cfg.Ejection.Failures > 0 {
		a.trial = r
	}
	r.at, r.serial, r.state, r.answered, r.counted, r.failed = a, a.serial, a.state, false, false, false
	r.tried = append(r.tried, name)
	a.inFlight++
}

// note notes a result.
func (m *model) note(r *modelRequest, result Result, whole bool) (counted bool) {
	a, e := r.at, &r.up.cfg.Ejection
	switch {
	case result == Canceled:
		return false
	case result == NotAllowed:
		if !a.denied {
			m.downs++
		}
		a.denied, a.refused = true, m.now+10*time.Second
		return false
	case e.Failures > 0 && result.Failed() && e.On.Has(result):
		if a.serial == r.serial && a.state != ejected {
			a.failures = append(a.failures, modelFailure{result, r.real.Caller, r.answered && whole && result == Reset})
			m.mayEject(r.up, a)
		}
		return true
	case result == Connect || result == Reset || result == Timeout:
		return false
	}
	m.allow(a)
	if a.serial != r.serial {
		return false
	}
	if a.state != open {
		m.back(a)
		return false
	}
	var left []modelFailure
	for _, f := range a.failures {
		if f.torn && !whole {
			left = append(left, f)
		}
	}
	a.failures = left
	return false
}

// allow notes that the address rules allow an address.
func (m *model) allow(a *modelAddress) {
	if a.denied {
		m.backs++
	}
	a.denied, a.refused = false, min(a.refused, m.now)
}

// mayEject ejects an address after a failure if the rules of the upstream say so.
func (m *model) mayEject(u *modelUpstream, a *modelAddress) {
	e := &u.cfg.Ejection
	most := e.Failures
	if a.state == halfOpen {
		most = 1
	}
	hard, soft := 0, 0
	callers := map[uint64]bool{}
	for _, f := range a.failures {
		if f.result == Connect || f.result == Reset {
			hard++
		} else {
			soft++
			callers[f.caller] = true
		}
	}
	count := hard
	if len(callers) > 1 {
		count += soft
	}
	if count < most {
		return
	}
	if hard < most { // max_percent bounds it
		others, active := 0, 0
		for _, c := range u.cfg.Targets {
			if !c.Drain {
				active++
				if c.Address != a.name && m.addresses[c.Address].state != open {
					others++
				}
			}
		}
		if others+1 > max(1, active*e.MaxPercent/100) {
			return
		}
	}
	if a.state == open {
		for healthy := m.now - a.since; healthy >= e.Base && a.number > 0; healthy -= e.Base {
			a.number--
		}
	}
	a.number++
	a.hard = hard >= most
	a.until = m.now + min(e.Max, e.Base*time.Duration(a.number))
	m.enter(a, ejected)
	m.downs++
}

func (m *model) answer(r *modelRequest, result Result) {
	r.answered, r.failed = true, result.Failed()
	r.counted = m.note(r, result, false)
	if r.at.trial == r {
		r.at.trial = nil
	}
}

func (m *model) finish(r *modelRequest, result Result) {
	if !r.counted {
		m.note(r, result, true)
	}
	if r.at.trial == r {
		r.at.trial = nil
	}
	if r.failed || result.Failed() {
		r.at.lastFailure = append(r.at.lastFailure, m.now)
	}
	r.at.inFlight--
	r.at = nil
}

func (m *model) report(a *modelAddress, c *modelCheck, isGood bool) {
	found, needed := bad, c.settings.Unhealthy
	if isGood {
		found, needed = good, c.settings.Healthy
		m.allow(a)
		if a.state != open && a.hard {
			m.back(a)
		}
	}
	before := c.state
	switch {
	case before == found:
		c.against = 0
		return
	case before == unknown:
	default:
		if c.against++; c.against < needed {
			return
		}
	}
	c.state, c.against = found, 0
	switch {
	case !isGood:
		m.downs++
	case before == bad:
		m.backs++
	}
}

// modelRun is one run of the model beside the real thing.
type modelRun struct {
	*model
	t        *rapid.T
	fleet    *Fleet
	inFlight []*modelRequest
	downs    int
	backs    int
}

var modelConfigs = []Config{
	{Ejection: DefaultEjection(), Retries: DefaultRetries()},
	{Ejection: Ejection{Failures: 2, On: On(Connect, Reset, Timeout, Status503), Base: 3 * time.Second, Max: 8 * time.Second, MaxPercent: 50}, Check: Check{ID: "a", Unhealthy: 2, Healthy: 3}},
	{Ejection: Ejection{Failures: 3, On: On(Timeout, Status502, GRPCUnavailable), Base: time.Second, Max: 300 * time.Second, MaxPercent: 100}, Policy: RoundRobin, Check: Check{ID: "b", Unhealthy: 1, Healthy: 1}},
	{Policy: Hash, Check: Check{ID: "a", Unhealthy: 2, Healthy: 3}},
	{Ejection: Ejection{Failures: 1, On: On(Connect, Reset, Status504), Base: 2 * time.Second, Max: 5 * time.Second, MaxPercent: 10}, Policy: Hash},
}

// Guarantee: who takes part, ejections, their ends and durations, half-open addresses, checks, drains and changes of the
// table are as the contract says, for upstreams that share addresses.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &modelRun{t: t, model: &model{addresses: map[string]*modelAddress{}}}
		r.fleet = NewFleet(func(x Transition) {
			if x.State == Healthy {
				r.backs++
			} else {
				r.downs++
			}
		})
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.fleet.random = random.Uint64
		for i := range 2 {
			r.ups = append(r.ups, &modelUpstream{gone: map[string]int{}})
			r.configure(i)
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin":     func(t *rapid.T) { r.t = t; r.begin() },
			"begin two": func(t *rapid.T) { r.t = t; r.begin(); r.begin() },
			"answer":    func(t *rapid.T) { r.t = t; r.answerOne() },
			"end":       func(t *rapid.T) { r.t = t; r.endOne() },
			"fail all":  func(t *rapid.T) { r.t = t; r.failAll() },
			"check":     func(t *rapid.T) { r.t = t; r.checkOne() },
			"return": func(t *rapid.T) {
				r.t = t
				if a := r.draw(); a != nil {
					want := a.state != open
					if want {
						r.back(a)
					}
					if got := r.fleet.Address(Key{"acc", "https://" + a.name, a.name}).Return(r.now); got != want {
						t.Fatalf("Return = %v, want %v", got, want)
					}
				}
			},
			"wait": func(t *rapid.T) {
				r.now += time.Duration(rapid.SampledFrom([]int{1, 100, 1000, 1000, 3000, 10_000, 60_000}).Draw(t, "ms")) * time.Millisecond
				r.tick()
			},
			"configure": func(t *rapid.T) {
				r.t = t
				if rapid.IntRange(0, 3).Draw(t, "whether") == 0 {
					r.configure(rapid.IntRange(0, 1).Draw(t, "upstream"))
				}
			},
			"": func(t *rapid.T) { r.t = t; r.compare() },
		})
	})
}

func (r *modelRun) configure(i int) {
	c := rapid.SampledFrom(modelConfigs).Draw(r.t, "configuration")
	for j := range 5 {
		kind := rapid.SampledFrom([]string{"", "plain", "plain", "plain", "backup", "drain"}).Draw(r.t, "target")
		if kind == "" {
			continue
		}
		name := fmt.Sprintf("10.0.0.%d:80", j)
		c.Targets = append(c.Targets, TargetConfig{URL: "https://" + name, Origin: "https://" + name, Address: name, Weight: j + 1, Backup: kind == "backup", Drain: kind == "drain"})
	}
	u := r.ups[i]
	u.cfg = &c
	for _, t := range c.Targets {
		if r.addresses[t.Address] == nil {
			r.addresses[t.Address] = &modelAddress{name: t.Address, checks: map[string]*modelCheck{}, since: r.now, refused: never}
		}
	}
	u.real = r.fleet.Upstream(r.now, Name{"acc", "gw", fmt.Sprint(i)}, &c)
	r.forget()
}

// forget forgets addresses and checks that no upstream has any more.
func (r *modelRun) forget() {
	used, checked := map[string]bool{}, map[string]bool{}
	for _, u := range r.ups {
		if u.cfg == nil {
			continue
		}
		for _, t := range u.cfg.Targets {
			used[t.Address] = true
			checked[t.Address+" "+u.cfg.Check.ID] = true
		}
	}
	for _, q := range r.inFlight {
		used[q.at.name] = true
		for _, s := range q.at.checks { // they stay with the target that leaves
			checked[q.at.name+" "+s.settings.ID] = true
		}
	}
	r.fleet.Sweep(r.now)
	for name, a := range r.addresses {
		if !used[name] {
			if real := r.fleet.Address(Key{"acc", "https://" + name, name}); real != nil {
				r.t.Fatalf("%s is still there", name)
			}
			delete(r.addresses, name)
			continue
		}
		for id := range a.checks {
			real := r.fleet.healths[healthKey{Key{"acc", "https://" + name, name}, id}]
			if real == nil && checked[name+" "+id] && len(r.inFlight) == 0 {
				r.t.Fatalf("the check %s of %s is gone", id, name)
			}
			if real == nil {
				delete(a.checks, id)
			}
		}
	}
}

func (r *modelRun) begin() {
	u := r.ups[rapid.IntRange(0, 1).Draw(r.t, "upstream")]
	q := &modelRequest{up: u, real: &Attempts{Small: rapid.Bool().Draw(r.t, "small"), Caller: rapid.Uint64Range(0, 2).Draw(r.t, "caller"), HasValue: true}}
	q.real.Value = mix(q.real.Caller)
	q.real.Begin(r.now, u.real)
	r.pick(q)
}

func (r *modelRun) pick(q *modelRequest) {
	want, allUnhealthy := r.allowed(q)
	got := q.real.Pick(r.now)
	if got == nil {
		if len(want) > 0 {
			r.t.Fatalf("no target was picked, want one of %v", want)
		}
		q.real.Finish(r.now)
		return
	}
	name := got.Address().Key().Address
	if !slices.Contains(want, name) {
		r.t.Fatalf("%s was picked after %v, want one of %v", name, q.tried, want)
	}
	if q.real.WithoutHealthy() != allUnhealthy {
		r.t.Fatalf("WithoutHealthy = %v, want %v", q.real.WithoutHealthy(), allUnhealthy)
	}
	isTrial := q.real.trial
	r.picked(q, name, allUnhealthy && !isTrial)
	r.inFlight = append(r.inFlight, q)
}

func (r *modelRun) drawRequest() *modelRequest {
	if len(r.inFlight) == 0 {
		return nil
	}
	return r.inFlight[rapid.IntRange(0, len(r.inFlight)-1).Draw(r.t, "request")]
}

var anyResult = rapid.SampledFrom([]Result{OK, OK, OK, Canceled, NotAllowed, Connect, Connect, Connect, Reset, Reset, Timeout, Timeout, Status502, Status503, Status503, Status504, GRPCUnavailable})

func (r *modelRun) answerOne() {
	q := r.drawRequest()
	if q == nil || q.answered {
		return
	}
	result := rapid.SampledFrom([]Result{OK, OK, OK, Status502, Status503, Status504, GRPCUnavailable}).Draw(r.t, "result")
	r.answer(q, result)
	q.real.Answer(r.now, result)
}

func (r *modelRun) endOne() {
	if q := r.drawRequest(); q != nil {
		r.endWith(q, anyResult.Draw(r.t, "result"))
	}
}

func (r *modelRun) failAll() {
	result := rapid.SampledFrom([]Result{Connect, Reset, Timeout, Status503}).Draw(r.t, "result")
	for _, q := range slices.Clone(r.inFlight) {
		r.endWith(q, result)
	}
}

func (r *modelRun) endWith(q *modelRequest, result Result) {
	if q.answered && result != OK && result != Canceled && result != Reset {
		result = Timeout
	}
	r.inFlight = slices.DeleteFunc(r.inFlight, func(o *modelRequest) bool { return o == q })
	r.finish(q, result)
	q.real.End(r.now, result)
	if result.Failed() && q.real.Retry(r.now) {
		r.pick(q)
	} else {
		q.real.Finish(r.now)
	}
	r.forget()
}

func (r *modelRun) draw() *modelAddress {
	var names []string
	for n := range r.addresses {
		names = append(names, n)
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return r.addresses[rapid.SampledFrom(names).Draw(r.t, "address")]
}

func (r *modelRun) checkOne() {
	u := r.ups[rapid.IntRange(0, 1).Draw(r.t, "upstream")]
	if len(u.cfg.Targets) == 0 || u.cfg.Check.ID == "" {
		return
	}
	name := rapid.SampledFrom(u.cfg.Targets).Draw(r.t, "target").Address
	isGood := rapid.Bool().Draw(r.t, "good")
	a := r.addresses[name]
	r.report(a, r.check(a, u.cfg.Check), isGood)
	r.fleet.healths[healthKey{Key{"acc", "https://" + name, name}, u.cfg.Check.ID}].Report(r.now, isGood, "status 500")
}

// compare compares everything that can be seen.
func (r *modelRun) compare() {
	if r.downs != r.model.downs || r.backs != r.model.backs {
		r.t.Fatalf("%d transitions down and %d up, want %d and %d", r.downs, r.backs, r.model.downs, r.model.backs)
	}
	for _, u := range r.ups {
		tiers, halves, rest := r.classes(u)
		none := true
		for _, t := range tiers {
			none = none && len(t) == 0
		}
		if got, want := u.real.AllUnhealthy(r.now), none && len(halves)+len(rest) > 0; got != want {
			r.t.Fatalf("AllUnhealthy = %v, want %v", got, want)
		}
		if got := u.real.Serves(r.now); got == none {
			r.t.Fatalf("Serves = %v with %v", got, tiers)
		}
		configured := 0
		for _, s := range u.real.Observe(r.now, nil) {
			a := r.addresses[s.Target.Address().Key().Address]
			if s.Weight == 0 {
				if !s.Draining || s.Own == 0 {
					r.t.Fatalf("a target that is gone is shown as %+v", s)
				}
				continue
			}
			configured++
			r.compareStatus(u, a, &s)
		}
		if configured != len(u.cfg.Targets) {
			r.t.Fatalf("%d targets are shown, want %d", configured, len(u.cfg.Targets))
		}
	}
}

func (r *modelRun) compareStatus(u *modelUpstream, a *modelAddress, s *Status) {
	wantFailed := 0
	for _, at := range a.lastFailure {
		if r.now-at < time.Second {
			wantFailed++
		}
	}
	if got := s.Target.Address().load(r.now); got < int64(a.inFlight+wantFailed) || r.now%tenth == 0 && got > int64(a.inFlight+len(a.lastFailure)) {
		r.t.Fatalf("%s counts as %d in flight, want %d and %d failed", a.name, got, a.inFlight, wantFailed)
	}
	if s.InFlight != int64(a.inFlight) || s.Run != len(a.failures) {
		r.t.Fatalf("%s: %d in flight and %d failures in a row, want %d and %d", a.name, s.InFlight, s.Run, a.inFlight, len(a.failures))
	}
	state := good
	if u.cfg.Check.ID != "" {
		state = r.check(a, u.cfg.Check).state
	}
	switch {
	case state == bad || a.refused > r.now:
		if s.State != Unhealthy {
			r.t.Fatalf("%s is %v, want unhealthy", a.name, s.State)
		}
	case a.state != open:
		if s.State != Ejected || s.HalfOpen != (a.state == halfOpen) || s.Until != a.until {
			r.t.Fatalf("%s is %v until %v, half-open %v; want ejected until %v, %v", a.name, s.State, s.Until, s.HalfOpen, a.until, a.state == halfOpen)
		}
	case s.State != Healthy && s.State != Warming:
		r.t.Fatalf("%s is %v, want healthy", a.name, s.State)
	}
}
