package ratelimit

import (
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// rounds is how often requests come together in each of the tests below.
var rounds = flag.Int("rounds", 20_000, "how often requests come together in the tests of exact decisions")

// Guarantee: a request that came before another request, and is decided after it, is not refused
// while a request is left, and finds one fewer left.
func TestEarlierInstantIsNotRefused(t *testing.T) {
	p := compile(Rate{Count: 2, Per: time.Hour}, 2)
	local, shared := new(Bucket), dividedBucket(t, &p)
	for name, bucket := range map[string]*Bucket{"a bucket of this node": local, "a share": shared} {
		limits := []Limit{{Scope: RouteScope, Params: &p, Bucket: bucket}}
		l := NewLimiter(func() int64 { return int64(time.Second) + 50 })
		var s [1]Status
		for i, came := range []Instant{at(time.Second + 50), at(time.Second)} {
			if r, _ := l.decide(came, limits, s[:]); r != Admitted || s[0].Remaining != int64(1-i) {
				t.Errorf("%s, request %d: got %v with %d left, want it admitted with %d", name, i, r, s[0].Remaining, 1-i)
			}
		}
		if l.peek(at(0), limits, s[:]); s[0].Remaining != 0 || s[0].ResetIn != 3600 {
			t.Errorf("%s: got %d left and a reset in %d s, want 0 and 3600", name, s[0].Remaining, s[0].ResetIn)
		}
	}
}

func dividedBucket(t *testing.T, p *Params) *Bucket {
	t.Helper()
	s, err := NewSharing(SharingConfig{Mode: Divided, Now: func() Instant { return at(0) }})
	if err != nil {
		t.Fatal(err)
	}
	return s.NewBucket(Name{}, p)
}

// crowd is several callers that come together again and again.
type crowd struct {
	limiter *Limiter
	clock   *Clock
	callers int
}

func newCrowd(callers int) *crowd {
	clock := NewClock()
	return &crowd{NewLimiter(clock.Mono), clock, callers}
}

// request is one caller's request: its limits, and what was decided.
type request struct {
	limits []Limit
	result Result
	status [maxLimits]Status
}

// come makes each caller send the request that has its number, at the same time as the others.
func (c *crowd) come(requests []request) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(c.callers)
	for w := range c.callers {
		done.Go(func() {
			ready.Done()
			<-start
			for i := w; i < len(requests); i += c.callers {
				q := &requests[i]
				q.result, _ = c.limiter.decide(c.clock.Now(), q.limits, q.status[:len(q.limits)])
			}
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// Guarantee: of requests that come together, none is refused while a request is left, and no two find
// the same number left (contract, 4.3).
func TestRequestsThatComeTogether(t *testing.T) {
	c := newCrowd(2)
	p := compile(Rate{Count: 2, Per: time.Hour}, 2)
	for range *rounds {
		limits := []Limit{{Scope: RouteScope, Params: &p, Bucket: new(Bucket)}}
		requests := []request{{limits: limits}, {limits: limits}}
		c.come(requests)
		checkTogether(t, requests)
		if requests[0].result != Admitted || requests[1].result != Admitted {
			t.Fatalf("under 2/h, two first requests: %v and %v, want both admitted", requests[0].result, requests[1].result)
		}
	}
}

// checkTogether fails the test unless requests, which came together to limits that had everything left and
// regain nothing meanwhile, were decided as if one after the other: a refused request has a limit that the
// admitted requests use up, and the requests that a limit admitted each found a different number left.
func checkTogether(t *testing.T, requests []request) {
	t.Helper()
	left := map[any][]int64{}
	full := map[any]int64{}
	for i := range requests {
		for j, l := range requests[i].limits {
			id := limitID(l)
			full[id] = requests[i].status[j].Limit
			if requests[i].result == Admitted {
				left[id] = append(left[id], requests[i].status[j].Remaining)
			}
		}
	}
	for id, all := range left {
		slices.Sort(all)
		for i, n := range all {
			if want := full[id] - int64(len(all)) + int64(i); n != want {
				t.Fatalf("of a limit of %d, %d requests found %v left", full[id], len(all), all)
			}
		}
	}
	for i := range requests {
		usedUp := slices.ContainsFunc(requests[i].limits, func(l Limit) bool { return int64(len(left[limitID(l)])) == full[limitID(l)] })
		if r := requests[i].result; r == Refused && !usedUp || r > Refused {
			t.Fatalf("request %d of %d: got %v with %+v, but each limit has a request left", i, len(requests), r, requests[i].status[:len(requests[i].limits)])
		}
	}
}

func limitID(l Limit) any {
	switch {
	case l.Daily != nil:
		return l.Daily
	case l.Slots != nil:
		return l.Slots
	default:
		return l.Bucket
	}
}

// Guarantee: the same holds for requests with several limits, of which others have some: a request that
// one of its limits refuses takes nothing from the others, not even for a moment.
func TestRequestsTogetherUnderSeveralLimits(t *testing.T) {
	c := newCrowd(4)
	random := rand.New(rand.NewPCG(1, 2))
	per := func(n int64) *Params { p := compile(Rate{Count: n, Per: 24 * time.Hour}, n); return &p }
	params := []*Params{nil, per(1), per(2), per(3), per(5)}
	for range *rounds {
		var buckets [4]Bucket
		var slots [4]Slots
		inFlight := random.IntN(8) // the limit that counts requests in flight, if it is one of them
		var capacity [4]int
		for i := range capacity {
			capacity[i] = 1 + random.IntN(4)
		}
		requests := make([]request, 6)
		for i := range requests {
			for j := range buckets {
				switch {
				case random.IntN(2) == 1:
				case j == inFlight:
					requests[i].limits = append(requests[i].limits, Limit{Scope: Scope(j), Slots: &slots[j], Most: int64(capacity[j])})
				default:
					requests[i].limits = append(requests[i].limits, Limit{Scope: Scope(j), Params: params[capacity[j]], Bucket: &buckets[j]})
				}
			}
		}
		c.come(requests)
		checkTogether(t, requests)
	}
}

// Guarantee: a decision is as exact if it is interrupted between the charges of two of its limits: a request
// that the first limit would refuse waits until the other limit has been charged or has refused.
func TestRefusalWaitsForChargesThatMayBeTakenBack(t *testing.T) {
	now, narrow, one := at(0), compile(perDay(1), 1), compile(perDay(1), 1)
	key, route := new(Bucket), new(Bucket)
	l := NewLimiter(func() int64 { return 0 })
	both := []Limit{{Scope: KeyScope, Params: &one, Bucket: key}, {Scope: RouteScope, Params: &narrow, Bucket: route}}
	d := &decision{moment: moment{Instant: now, day: dayOf(now.Wall)}, limiter: l, entries: entriesOf(both...)}
	if f, _ := d.check(); f != passes {
		t.Fatal(f)
	}
	if !d.hold() {
		t.Fatal("the key is locked")
	}
	if v := &d.entries[0]; !v.charges().CompareAndSwap(v.word, v.next) { // the key is charged, the route not yet
		t.Fatal("the key cannot be charged")
	}
	other := decision{moment: d.moment, limiter: l, entries: entriesOf(both[:1]...)}
	if f, _ := other.check(); f != refuses || other.isFinal() {
		t.Error("a request is refused for a charge that may be taken back")
	}
	d.refund(1)
	if f, _ := other.check(); f != passes {
		t.Errorf("after the refund: got finding %v, want that the request passes", f)
	}
	var s [1]Status
	if r, _ := l.decide(now, both[:1], s[:]); r != Admitted {
		t.Errorf("after the refund: got %v, want Admitted", r)
	}
	if r, _ := l.decide(now, both[:1], s[:]); r != Refused {
		t.Errorf("the next request: got %v, want Refused", r)
	}
}
