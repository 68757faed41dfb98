package balance

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// simulation is a discrete-event simulation of an upstream's targets, with virtual time.
type simulation struct {
	now     time.Duration
	events  eventQueue
	serial  int
	random  *rand.Rand
	fleet   *Fleet
	cfg     *Config
	ups     []*Upstream // a request goes to one of them
	servers map[string]*server

	rate       float64 // requests a second; 0: each connection sends the next request at once
	idempotent float64 // share of the requests
	callers    uint64
	idle       int // connections that wait for something to send
	backlog    int // requests that wait for a connection
	end        time.Duration

	requests, attempts, failed, failedIdempotent int
	failures                                     []time.Duration // when each failed
	latencies                                    []time.Duration
	transitions                                  []Transition
}

// server is a target: what happens to an attempt that begins at a time.
type server struct {
	name     string
	begun    []time.Duration
	served   int
	behave   func(now time.Duration) (after time.Duration, r Result)
	inFlight map[*simulated]bool
}

// simulated is a request.
type simulated struct {
	Attempts
	began      time.Duration
	idempotent bool
	attempt    int // its number, so that the end of one that a kill has ended is ignored
	at         *server
}

type simEvent struct {
	at     time.Duration
	serial int
	do     func()
}

type eventQueue []simEvent

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].serial < q[j].serial
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *eventQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// newSimulation returns a simulation of three equal targets that 64 connections use with 1,000 requests a second.
func newSimulation(seed uint64, change func(*Config)) *simulation {
	s := &simulation{random: rand.New(rand.NewPCG(seed, 1)), servers: map[string]*server{}, rate: 1000, idempotent: 1, callers: 100, idle: 64}
	s.fleet = NewFleet(func(t Transition) { s.transitions = append(s.transitions, t) })
	s.fleet.random = s.random.Uint64
	s.cfg = benchConfig(3, 1, LeastRequests)
	s.cfg.Check = Check{}
	if change != nil {
		change(s.cfg)
	}
	for i := range s.cfg.Targets {
		a := s.cfg.Targets[i].Address
		s.servers[a] = &server{name: a, behave: s.serves(5 * time.Millisecond), inFlight: map[*simulated]bool{}}
	}
	s.upstreams(1)
	return s
}

// upstreams makes requests go to n upstreams with equal targets, as routes of many gateways do.
func (s *simulation) upstreams(n int) {
	for i := len(s.ups); i < n; i++ {
		s.ups = append(s.ups, s.fleet.Upstream(s.now, Name{"acc", fmt.Sprint("gw", i), "default"}, s.cfg))
	}
}

func (s *simulation) server(i int) *server { return s.servers[s.cfg.Targets[i].Address] }

// serves returns the behaviour of a target that answers in a time with the given mean.
func (s *simulation) serves(mean time.Duration) func(time.Duration) (time.Duration, Result) {
	return func(time.Duration) (time.Duration, Result) {
		return time.Duration(float64(mean) * (0.5 + s.random.ExpFloat64()/2)), OK
	}
}

func refuses(time.Duration) (time.Duration, Result) { return 200 * time.Microsecond, Connect }

// kill makes a target refuse connections, and breaks what is in flight.
func (s *simulation) kill(v *server) {
	v.behave = refuses
	var broken []*simulated
	for r := range v.inFlight {
		broken = append(broken, r)
	}
	slices.SortFunc(broken, func(a, b *simulated) int { return int(a.began - b.began) })
	for _, r := range broken {
		s.ended(r, Reset)
	}
}

func (s *simulation) after(d time.Duration, do func()) {
	s.serial++
	heap.Push(&s.events, simEvent{s.now + d, s.serial, do})
}

// run runs the simulation for a duration.
func (s *simulation) run(d time.Duration) {
	if s.end == 0 {
		s.arrive()
	}
	s.end = s.now + d
	heap.Push(&s.events, simEvent{s.end, 1 << 62, nil})
	for {
		e := heap.Pop(&s.events).(simEvent)
		s.now = e.at
		if e.do == nil {
			return
		}
		e.do()
	}
}

func (s *simulation) arrive() {
	if s.rate == 0 {
		for ; s.idle > 0; s.idle-- {
			s.begin()
		}
		return
	}
	s.after(time.Duration(s.random.ExpFloat64()*1e9/s.rate), func() {
		if s.idle > 0 {
			s.idle--
			s.begin()
		} else {
			s.backlog++
		}
		s.arrive()
	})
}

func (s *simulation) begin() {
	r := &simulated{began: s.now, idempotent: s.random.Float64() < s.idempotent}
	r.Small, r.Caller = r.idempotent, s.random.Uint64N(s.callers)
	r.Value, r.HasValue = mix(r.Caller), true
	s.requests++
	r.Begin(s.now, s.ups[s.random.IntN(len(s.ups))])
	s.attemptOf(r)
}

func (s *simulation) attemptOf(r *simulated) {
	t := r.Pick(s.now)
	v := s.servers[t.Address().Key().Address]
	v.begun = append(v.begun, s.now)
	v.inFlight[r] = true
	r.at = v
	s.attempts++
	r.attempt++
	after, result := v.behave(s.now)
	n := r.attempt
	s.after(after, func() {
		if r.attempt == n && r.at != nil {
			s.ended(r, result)
		}
	})
}

func (s *simulation) ended(r *simulated, result Result) {
	delete(r.at.inFlight, r)
	if result == OK {
		r.at.served++
		r.Answer(s.now, OK)
	}
	r.at = nil
	u := r.upstream
	r.End(s.now, result)
	if result.Failed() && (r.idempotent || result == Connect) && (result == Connect || u.RetriesOn(result)) && r.Retry(s.now) {
		s.attemptOf(r)
		return
	}
	if result.Failed() {
		s.failed++
		s.failures = append(s.failures, s.now)
		if r.idempotent {
			s.failedIdempotent++
		}
	}
	s.latencies = append(s.latencies, s.now-r.began)
	r.Finish(s.now)
	switch {
	case s.rate == 0:
		s.begin()
	case s.backlog > 0:
		s.backlog--
		s.begin()
	default:
		s.idle++
	}
}

// reset forgets the figures so far.
func (s *simulation) reset() {
	s.requests, s.attempts, s.failed, s.failedIdempotent, s.failures, s.latencies = 0, 0, 0, 0, nil, nil
	for _, v := range s.servers {
		v.begun, v.served = nil, 0
	}
}

// share returns the share of a target of what was served.
func (s *simulation) share(i int) float64 {
	all := 0
	for _, v := range s.servers {
		all += v.served
	}
	return float64(s.server(i).served) / float64(all)
}

func (s *simulation) percentile(p float64) time.Duration {
	slices.Sort(s.latencies)
	return s.latencies[int(float64(len(s.latencies)-1)*p)]
}

// outAt returns when a target was ejected first.
func (s *simulation) outAt(i int) (at time.Duration, is bool) {
	for _, t := range s.transitions {
		if t.State == Ejected && t.Address.key.Address == s.cfg.Targets[i].Address {
			return t.At, true
		}
	}
	return 0, false
}

// halfOpens returns how often a target has become half-open until now.
func (s *simulation) halfOpens(i int) (n int) {
	for _, t := range s.transitions {
		if t.State == Ejected && t.Address.key.Address == s.cfg.Targets[i].Address && t.Until <= s.now {
			n++
		}
	}
	return n
}

// seeds calls f with simulations of several seeds.
func seeds(t *testing.T, f func(t *testing.T, seed uint64)) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			f(t, seed)
		})
	}
}

// Guarantee (section 10): after kill -9 of one of three targets no idempotent request fails, and at most 5 requests that
// begin after it reach the target before it is out, with one more for each time that it is half-open. Six hundred upstreams
// share that.
func TestKilledTarget(t *testing.T) {
	for _, upstreams := range []int{1, 600} {
		for _, rate := range []float64{1000, 0} {
			t.Run(fmt.Sprint(upstreams, " upstreams at ", rate), func(t *testing.T) {
				seeds(t, func(t *testing.T, seed uint64) {
					s := newSimulation(seed, nil)
					s.upstreams(upstreams)
					s.rate, s.idempotent = rate, 0.8
					if rate == 0 {
						for i := range 3 {
							s.server(i).behave = s.serves(30 * time.Millisecond)
						}
					}
					s.run(time.Second)
					s.reset()
					s.kill(s.server(0))
					span := 21 * time.Second
					if rate == 0 {
						span = 12 * time.Second
					}
					s.run(span)
					out, is := s.outAt(0)
					if !is {
						t.Fatal("the target was not ejected")
					}
					before := 0
					for _, at := range s.server(0).begun {
						if at <= out {
							before++
						}
					}
					after, most := len(s.server(0).begun)-before, s.halfOpens(0)
					t.Logf("%d requests, %d reached it before it was out, %d later, with %d times half-open; %d failed, all not idempotent", s.requests, before, after, most, s.failed)
					if s.failedIdempotent > 0 {
						t.Errorf("%d idempotent requests failed of %d, want none", s.failedIdempotent, s.requests)
					}
					if before > 5 || after > most {
						t.Errorf("%d requests reached the target before it was out, want at most 5, and %d after it, want at most %d", before, after, most)
					}
				})
			})
		}
	}
}

// Guarantee (section 10): of a host that vanished, no idempotent request fails, and it is out within 6 s.
func TestVanishedTarget(t *testing.T) {
	seeds(t, func(t *testing.T, seed uint64) {
		s := newSimulation(seed, nil)
		s.run(2 * time.Second)
		s.reset()
		vanished := s.now
		s.server(0).behave = func(now time.Duration) (time.Duration, Result) {
			if now-vanished < 500*time.Millisecond { // on connections that it has
				return 5500 * time.Millisecond, Reset
			}
			return time.Second, Connect
		}
		s.run(15 * time.Second)
		out, is := s.outAt(0)
		if !is || out-vanished > 6*time.Second {
			t.Errorf("out after %v (%v), want at most 6 s", out-vanished, is)
		}
		if s.failed > 0 {
			t.Errorf("%d of %d failed, want none", s.failed, s.requests)
		}
		t.Logf("out after %v, %d requests waited for it", out-vanished, len(s.server(0).begun))
	})
}

// Guarantee (section 10): with two of three targets refused at 1,000 requests a second, at most 0.05 % fail after the first
// second, whatever the policy.
func TestTwoOfThreeRefused(t *testing.T) {
	for _, p := range []Policy{LeastRequests, RoundRobin, Hash} {
		t.Run(fmt.Sprint("policy ", p), func(t *testing.T) {
			seeds(t, func(t *testing.T, seed uint64) {
				s := newSimulation(seed, func(c *Config) { c.Policy = p })
				s.server(1).behave, s.server(2).behave = refuses, refuses
				s.run(time.Second)
				first := s.failed
				s.reset()
				s.run(time.Minute)
				t.Logf("%d failed in the first second, then %d of %d", first, s.failed, s.requests)
				if float64(s.failed) > 0.0005*float64(s.requests) {
					t.Errorf("%d of %d failed after the first second, want at most 0.05 %%", s.failed, s.requests)
				}
			})
		})
	}
}

// Guarantee (section 10): a target that comes back serves after base, or after a good check.
func TestTargetComesBack(t *testing.T) {
	for _, checked := range []bool{false, true} {
		t.Run(fmt.Sprint("checked ", checked), func(t *testing.T) {
			seeds(t, func(t *testing.T, seed uint64) {
				s := newSimulation(seed, func(c *Config) {
					if checked {
						c.Check = Check{ID: "check", Unhealthy: 2, Healthy: 2}
					}
				})
				up := true
				bar := 10*time.Second + 100*time.Millisecond // base, and until a request tries it
				if checked {
					bar = 2*time.Second + 2*time.Second // two intervals and timeout
					s.fleet.Healths(func(h *Health, _ Check) bool {
						var check func()
						check = func() {
							ok := up || h.Address().Key().Address != s.cfg.Targets[0].Address
							h.Report(s.now, ok, "connection refused")
							s.after(time.Second, check)
						}
						check()
						return true
					})
				}
				s.run(2 * time.Second)
				up = false
				s.kill(s.server(0))
				s.run(4 * time.Second)
				up = true
				s.server(0).behave = s.serves(5 * time.Millisecond)
				back := s.now
				if checked {
					s.reset()
				} else {
					out, _ := s.outAt(0)
					back = out
					s.reset()
				}
				s.run(back + bar - s.now)
				if s.server(0).served == 0 {
					t.Errorf("it served nothing within %v", bar)
				}
				s.run(10 * time.Second)
				s.reset()
				s.run(10 * time.Second)
				if share := s.share(0); share < 0.3 {
					t.Errorf("its share is %.3f after the warm-up, want a third", share)
				}
				if s.failed > 0 {
					t.Errorf("%d failed", s.failed)
				}
			})
		})
	}
}

// Guarantee (section 10): with all targets dead, the load on them is at most 1.2 × the requests + 3/s.
func TestAllDead(t *testing.T) {
	for _, rate := range []float64{1, 30, 1000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			seeds(t, func(t *testing.T, seed uint64) {
				s := newSimulation(seed, func(c *Config) { c.Retries.Attempts = 5 })
				s.rate = rate
				for i := range 3 {
					s.server(i).behave = refuses
				}
				const span = 40 * time.Second
				s.run(span)
				most := 1.2*float64(s.requests) + 3*span.Seconds() + budgetSpare
				t.Logf("%d requests, %d attempts", s.requests, s.attempts)
				if float64(s.attempts) > most {
					t.Errorf("%d attempts of %d requests, want at most %.0f", s.attempts, s.requests, most)
				}
				if !s.ups[0].AllUnhealthy(s.now) && rate > 1 {
					t.Error("the upstream is not shown as all_unhealthy")
				}
				for i := range 3 {
					s.server(i).behave = s.serves(5 * time.Millisecond)
				}
				s.run(time.Second)
				s.reset()
				s.run(10 * time.Second)
				if s.failed > 0 || s.requests == 0 {
					t.Errorf("%d of %d failed after all came back, want none", s.failed, s.requests)
				}
			})
		})
	}
}

// Guarantee (section 10): with one of three targets flapping each second for a minute, at most 0.1 % of the requests fail,
// and the shares of the others are within 20 % of each other's mean.
func TestFlappingTarget(t *testing.T) {
	seeds(t, func(t *testing.T, seed uint64) {
		s := newSimulation(seed, nil)
		s.run(2 * time.Second)
		s.reset()
		serve := s.serves(5 * time.Millisecond)
		for i := range 60 {
			if i%2 == 0 {
				s.kill(s.server(0))
			} else {
				s.server(0).behave = serve
			}
			s.run(time.Second)
		}
		t.Logf("%d of %d failed, shares %.3f %.3f %.3f", s.failed, s.requests, s.share(0), s.share(1), s.share(2))
		if float64(s.failed) > 0.001*float64(s.requests) {
			t.Errorf("%d of %d failed, want at most 0.1 %%", s.failed, s.requests)
		}
		mean := (s.share(1) + s.share(2)) / 2
		if s.share(1) < 0.8*mean || s.share(1) > 1.2*mean {
			t.Errorf("the shares of the others are %.3f and %.3f", s.share(1), s.share(2))
		}
	})
}

// Guarantee (section 10): a target that is 100 times slower gets at most 5 % of its fair share, and the p99 of all is at
// most 1.5 times what it is without it, if 64 connections are busy. With few requests in flight its share stays small, but a
// target that is idle each time that it has answered gets one more request each time: 10 a second if it takes 0.1 s, which is
// 1 % of 1,000. By requests in flight alone that cannot be less.
func TestSlowTarget(t *testing.T) {
	for _, c := range []struct {
		rate    float64
		latency time.Duration
		share   float64
	}{{0, time.Millisecond, 0.05}, {0, 10 * time.Millisecond, 0.05}, {1000, 10 * time.Millisecond, 0.05}, {1000, 5 * time.Millisecond, 0.05}, {1000, time.Millisecond, 0.09}} {
		t.Run(fmt.Sprint(c.rate, " ", c.latency), func(t *testing.T) {
			seeds(t, func(t *testing.T, seed uint64) {
				with, without := newSimulation(seed, nil), newSimulation(seed, nil)
				for i := range 3 {
					with.server(i).behave, without.server(i).behave = with.serves(c.latency), without.serves(c.latency)
				}
				with.server(0).behave = with.serves(100 * c.latency)
				span := 12 * time.Second
				if with.rate, without.rate = c.rate, c.rate; c.rate == 0 {
					span = 600 * c.latency
				}
				with.run(span)
				without.fleet.Drop(0, Name{"acc", "gw0", "default"})
				without.cfg.Targets, without.ups = without.cfg.Targets[1:], nil
				without.upstreams(1)
				without.run(span)
				fair, p, q := with.share(0)*3, with.percentile(0.99), without.percentile(0.99)
				t.Logf("%.1f %% of its fair share; p99 %v, without it %v", 100*fair, p, q)
				if fair > c.share {
					t.Errorf("it got %.1f %% of its fair share, want at most %.0f %%", 100*fair, 100*c.share)
				}
				if c.rate == 0 && float64(p) > 1.5*float64(q) {
					t.Errorf("p99 is %v, want at most 1.5 times %v", p, q)
				}
			})
		})
	}
}

// Guarantee: each policy gives targets their shares by weight, however few or many requests are in flight. Hash does over
// many callers. LeastRequests prefers an idle target of little weight to a busy one, which shows with few in flight.
func TestSharesByWeight(t *testing.T) {
	for _, p := range []struct {
		policy Policy
		within float64
	}{{LeastRequests, 0.25}, {RoundRobin, 0.01}, {Hash, 0.1}} {
		for _, flying := range []float64{0.1, 3, 64} {
			t.Run(fmt.Sprint("policy ", p.policy, " with ", flying), func(t *testing.T) {
				t.Parallel()
				s := newSimulation(1, func(c *Config) {
					*c = *benchConfig(4, 4, p.policy)
					c.Check = Check{}
				})
				for i := range 4 {
					s.server(i).behave = s.serves(10 * time.Millisecond)
				}
				s.rate, s.idle, s.callers = flying/0.01, 10_000, 100_000
				s.run(time.Duration(40_000 / s.rate * float64(time.Second)))
				var shares []float64
				for i := range 4 {
					want := float64(i+1) / 10
					shares = append(shares, s.share(i))
					if got := s.share(i); got < want*(1-p.within) || got > want*(1+p.within) {
						t.Errorf("the target with weight %d has %.4f of the requests, want %.1f within %.0f %%", i+1, got, want, 100*p.within)
					}
				}
				t.Logf("%.4f", shares)
			})
		}
	}
}

// Guarantee (section 2): a failed attempt counts as in flight for 1 s more. A target that answers fast, but always 503, which
// ejects nothing, does not draw the requests of a good one.
func TestFailedAttemptsCountAsInFlight(t *testing.T) {
	seeds(t, func(t *testing.T, seed uint64) {
		s := newSimulation(seed, nil)
		s.server(0).behave = func(time.Duration) (time.Duration, Result) { return 100 * time.Microsecond, Status503 }
		s.run(10 * time.Second)
		share := float64(len(s.server(0).begun)) / float64(s.attempts)
		t.Logf("it gets %.4f of the requests", share)
		if share > 0.05 {
			t.Errorf("a target that is failing fast gets %.3f of the requests, want at most 0.05", share)
		}
	})
}
