package detect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/event/detect"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// tb is what both *testing.T and *rapid.T offer.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// site is one gateway with a Detector over a store.
type site struct {
	tb
	store            *memoryStore
	watch            *detect.Detector
	account, gateway [16]byte
	woken            atomic.Int64
}

// memoryStore keeps events as a store does.
type memoryStore struct {
	mu     sync.Mutex
	events []event.Event
	known  map[string]bool
	shut   bool // calls fail
	half   bool // a call that fails writes all the same
}

func (s *memoryStore) set(shut, half bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut, s.half = shut, half
}

func (s *memoryStore) AppendEvents(ctx context.Context, events []event.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.shut && !s.half {
		return errors.New("the disk is full")
	}
	for _, e := range events {
		if s.known[e.ID] {
			return fault.New(fault.Conflict, "the event is there")
		}
	}
	for _, e := range events {
		s.known[e.ID] = true
	}
	s.events = append(s.events, events...)
	if s.shut {
		return errors.New("the disk fails")
	}
	return nil
}

// Guarantee: what routes that are gone left behind takes nobody's events away.
func TestCountsOfGoneRoutes(t *testing.T) {
	s := open(t)
	defer s.stop()
	const counts, batch = 1 << 17, 4096 // as many as are remembered, and as may wait
	live := s.gateway
	s.gateway = [16]byte{3} // RoutePath is asked for another
	entries := make([]accesslog.Entry, 0, counts)
	for i := range counts {
		entries = append(entries, s.limited([16]byte{12: byte(i >> 24), 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}, ratelimit.RouteScope))
	}
	s.gateway = live
	for part := range slices.Chunk(entries, batch) {
		s.watch.Take(part)
		if err := s.watch.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.watch.Take([]accesslog.Entry{s.limited(route(0), ratelimit.RouteScope)})
	if err := s.watch.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lost, events := s.watch.Lost(), len(s.store.events); lost != 0 || events != counts+1 {
		t.Errorf("%d lost, %d events, want %d", lost, events, counts+1)
	}
}

// route returns the identifier of the route number n.
func route(n int) [16]byte { return [16]byte{15: byte(n + 1)} }

// RoutePath implements watch.Routes.
func (s *site) RoutePath(gatewayID, routeID string) string {
	if u, ok := id.Parse(id.Route, routeID); ok && gatewayID == id.Format(id.Gateway, s.gateway) {
		return fmt.Sprintf("/route/%d/{id}", u[15]-1)
	}
	return ""
}

// open makes a site.
func open(t tb) *site {
	t.Helper()
	s := &site{tb: t, account: [16]byte{1}, gateway: [16]byte{2}, store: &memoryStore{known: map[string]bool{}}}
	s.start()
	return s
}

func (s *site) start() {
	s.Helper()
	var err error
	if s.watch, err = detect.New(detect.Config{Store: s.store, Routes: s, Wake: func() { s.woken.Add(1) }}); err != nil {
		s.Fatal(err)
	}
	if err := s.watch.Start(context.Background()); err != nil {
		s.Fatal(err)
	}
}

func (s *site) stop() {
	s.Helper()
	if err := s.watch.Stop(context.Background()); err != nil {
		s.Fatal(err)
	}
}

func (s *site) entry(d accesslog.Result, r [16]byte) accesslog.Entry {
	return accesslog.Entry{Path: "/route/0/7", Record: accesslog.Record{
		Account: s.account, Gateway: s.gateway, Route: r, Key: [16]byte{9}, Request: id.NewFast(), Method: accesslog.GET,
		Result: d, Prefix: [10]byte([]byte("kg_AbCdEf\x00")), Status: 200, UpstreamStatus: 200,
	}}
}

func (s *site) limited(r [16]byte, scope ratelimit.Scope) accesslog.Entry {
	e := s.entry(accesslog.Limited, r)
	e.Status, e.UpstreamStatus, e.LimitScope, e.Limit = 429, 0, uint8(scope), 50
	return e
}

func (s *site) failed(r [16]byte, status uint16) accesslog.Entry {
	e := s.entry(accesslog.Forwarded, r)
	e.Status, e.UpstreamStatus = status, status
	return e
}

// told is an event as a receiver reads it.
type told struct {
	Type      event.Type
	CreatedAt time.Time `json:"created_at"`
	Data      struct {
		event.UpstreamError
		KeyID      *string `json:"key_id"`
		KeyPrefix  *string `json:"key_prefix"`
		LimitScope string  `json:"limit_scope"`
		Limit      int64
		SampleRate int `json:"sample_rate"`
		Breaches   int64
	}
}

// events returns all events, the first first.
func (s *site) events() []told {
	s.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	var all []told
	for _, e := range s.store.events {
		var t told
		if err := json.Unmarshal(e.Payload, &t); err != nil {
			s.Fatal(err)
		}
		if want := id.Format(id.Account, s.account); e.AccountID != want || t.Type != e.Type || !t.CreatedAt.Equal(e.CreatedAt) {
			s.Fatalf("event %+v tells %+v", e, t)
		}
		all = append(all, t)
	}
	return all
}

// Breaches 1, 101, 201, … of each gateway, route and limit scope make an event,
// which tells of the caller of that breach.
func TestBreachesAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		defer s.stop()
		for i := range 250 {
			second := s.limited(route(1), ratelimit.GlobalScope)
			second.Key, second.Prefix = [16]byte{}, [10]byte{}
			first := s.limited(route(0), ratelimit.KeyScope)
			first.Key[15] = byte(i)
			s.watch.Take([]accesslog.Entry{first, second, s.entry(accesslog.Forwarded, route(0))})
		}
		s.watch.Take([]accesslog.Entry{s.limited(route(0), ratelimit.RouteScope)})
		if err := s.watch.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range s.events() {
			key := "nobody"
			if e.Data.KeyID != nil {
				u, _ := id.Parse(id.Key, *e.Data.KeyID)
				key = fmt.Sprintf("key %d %s", u[15], *e.Data.KeyPrefix)
			}
			got = append(got, fmt.Sprintf("%s %s %s %d %s %s %d/%d", e.Type, key, e.Data.LimitScope, e.Data.Limit, e.Data.Method, e.Data.Path, e.Data.Breaches, e.Data.SampleRate))
		}
		want := []string{
			"rate_limit.exceeded key 0 kg_AbCdEf key 50 GET /route/0/{id} 1/100",
			"rate_limit.exceeded nobody global 50 GET /route/1/{id} 1/100",
			"rate_limit.exceeded key 100 kg_AbCdEf key 50 GET /route/0/{id} 101/100",
			"rate_limit.exceeded nobody global 50 GET /route/1/{id} 101/100",
			"rate_limit.exceeded key 200 kg_AbCdEf key 50 GET /route/0/{id} 201/100",
			"rate_limit.exceeded nobody global 50 GET /route/1/{id} 201/100",
			"rate_limit.exceeded key 0 kg_AbCdEf route 50 GET /route/0/{id} 1/100",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// The first error of a route and status is told at once, what follows together
// after a second, and after a second of silence the next is a first one again. The sender is woken.
func TestErrorsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		defer s.stop()
		want := func(occurrences ...int64) {
			t.Helper()
			synctest.Wait()
			var got []int64
			for _, e := range s.events() {
				got = append(got, e.Data.Occurrences)
			}
			if !slices.Equal(got, occurrences) {
				t.Fatalf("events of %v occurrences; want %v", got, occurrences)
			}
		}
		s.watch.Take([]accesslog.Entry{s.failed(route(0), 503)})
		want(1)
		for range 5 {
			s.watch.Take([]accesslog.Entry{s.failed(route(0), 503), s.failed(route(0), 503)})
		}
		time.Sleep(999 * time.Millisecond) //nolint:forbidigo // the bubble's clock
		want(1)
		time.Sleep(time.Millisecond) //nolint:forbidigo // the bubble's clock
		want(1, 10)
		time.Sleep(300 * time.Millisecond) //nolint:forbidigo // the bubble's clock
		s.watch.Take([]accesslog.Entry{s.failed(route(0), 503)})
		time.Sleep(700 * time.Millisecond) //nolint:forbidigo // the bubble's clock
		want(1, 10, 1)
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		want(1, 10, 1)
		s.watch.Take([]accesslog.Entry{s.failed(route(0), 503)})
		want(1, 10, 1, 1)
		timeout, unreachable, mine := s.entry(accesslog.TimedOut, route(0)), s.entry(accesslog.Unreachable, route(0)), s.entry(accesslog.Failed, route(0))
		timeout.Status, timeout.UpstreamStatus = 504, 0
		unreachable.Status, unreachable.UpstreamStatus = 502, 0
		mine.Status, mine.UpstreamStatus = 503, 0
		left := s.failed(route(1), 500)
		left.Result, left.Status = accesslog.Abandoned, 499
		begun := s.failed(route(1), 501)
		begun.Part = accesslog.Started
		s.watch.Take([]accesslog.Entry{timeout, unreachable, mine, left, begun})
		synctest.Wait()
		var got []string
		for _, e := range s.events()[4:] {
			got = append(got, fmt.Sprintf("%s %d %s %s", e.Data.Path, e.Data.Status, e.Data.Reason, e.Data.Method))
		}
		if want := []string{"/route/0/{id} 504 timeout GET", "/route/0/{id} 502 unreachable GET", "/route/1/{id} 500 upstream_status GET"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if last := s.events()[4]; last.Data.RequestID != id.Format(id.Request, timeout.Request) {
			t.Errorf("the event tells of request %s", last.Data.RequestID)
		}
		if s.woken.Load() == 0 {
			t.Error("nobody woke the sender")
		}
	})
}

// Whatever comes when, through restarts and failures of the store: the
// occurrences of each route and status add up to the errors exactly, there is at
// most one event of them in a second but for restarts, and of each count of
// breaches every hundredth is told.
func TestCountsAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{
				what:  rapid.SampledFrom([]string{"errors", "errors", "errors", "breaches", "wait", "wait", "restart", "shut", "half", "open"}).Draw(t, "what"),
				route: rapid.IntRange(0, 2).Draw(t, "route"), status: rapid.Uint16Range(500, 502).Draw(t, "status"),
				n: rapid.IntRange(1, 130).Draw(t, "n"), wait: time.Duration(rapid.IntRange(0, 2500).Draw(t, "ms")) * time.Millisecond,
			}
		}), 1, 40).Draw(rt, "steps")
		synctest.Test(t, func(*testing.T) { addUp(rt, steps) })
	})
}

type step struct {
	what   string
	route  int
	status uint16
	n      int
	wait   time.Duration
}

type outage struct {
	route  string
	status int
}

func addUp(t *rapid.T, steps []step) {
	s := open(t)
	errs, breaches, sampled := map[outage]int64{}, map[string]int64{}, map[string]int64{}
	var restarts []time.Time
	for _, st := range steps {
		name := id.Format(id.Route, route(st.route))
		switch st.what {
		case "errors":
			errs[outage{name, int(st.status)}] += int64(st.n)
			for range st.n {
				s.watch.Take([]accesslog.Entry{s.failed(route(st.route), st.status)})
			}
		case "breaches":
			for range st.n {
				if breaches[name]%event.SampleRate == 0 {
					sampled[name]++
				}
				breaches[name]++
				s.watch.Take([]accesslog.Entry{s.limited(route(st.route), ratelimit.RouteScope)})
			}
		case "wait":
			time.Sleep(st.wait) //nolint:forbidigo // the bubble's clock
		case "restart":
			s.store.set(false, false)
			s.stop()
			restarts = append(restarts, time.Now())
			clear(breaches)
			s.start()
		case "shut":
			s.store.set(true, false)
		case "half":
			s.store.set(true, true)
		case "open":
			s.store.set(false, false)
		}
	}
	s.store.set(false, false)
	s.stop()
	restarts = append(restarts, time.Now())
	last := map[outage]time.Time{}
	for _, e := range s.events() {
		name := outage{e.Data.RouteID, e.Data.Status}
		if e.Type == event.RateLimitExceeded {
			sampled[e.Data.RouteID]--
			continue
		}
		errs[name] -= e.Data.Occurrences
		ended := slices.ContainsFunc(restarts, func(at time.Time) bool { return !at.Before(last[name]) && !at.After(e.CreatedAt) })
		if e.CreatedAt.Sub(last[name]) < time.Second && !ended {
			t.Errorf("two events of %v within %v", name, e.CreatedAt.Sub(last[name]))
		}
		last[name] = e.CreatedAt
	}
	for name, left := range errs {
		if left != 0 {
			t.Errorf("%d errors of %v were not told", left, name)
		}
	}
	for name, left := range sampled {
		if left != 0 {
			t.Errorf("%d samples of %s were not told", left, name)
		}
	}
	if s.watch.Lost() != 0 {
		t.Errorf("%d were lost", s.watch.Lost())
	}
}

// A store that takes nothing blocks nobody: errors wait in their counts, breaches
// in a bounded queue, and what is beyond it is counted.
func TestABlockedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.store.set(true, false)
		const routes, each = 5000, 3
		for i := range routes {
			r := [16]byte{1, 14: byte(i >> 8), 15: byte(i)}
			for range each {
				s.watch.Take([]accesslog.Entry{s.limited(r, ratelimit.RouteScope), s.failed(r, 500)})
			}
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // the bubble's clock
		lost := s.watch.Lost()
		if lost == 0 || lost >= routes {
			t.Errorf("%d of %d events were lost", lost, routes)
		}
		s.store.set(false, false)
		s.stop()
		var breaches, occurrences int64
		for _, e := range s.events() {
			occurrences += e.Data.Occurrences
			if e.Type == event.RateLimitExceeded {
				breaches++
			}
		}
		if breaches != routes-int64(lost) || occurrences != routes*each {
			t.Errorf("%d breaches and %d errors were told, %d lost", breaches, occurrences, lost)
		}
	})
}

// Take may be called while the writer writes.
func TestTakeBesideTheWriter(t *testing.T) {
	s := open(t)
	var all sync.WaitGroup
	const takers, each = 4, 500
	for n := range takers {
		all.Go(func() {
			for i := range each {
				s.watch.Take([]accesslog.Entry{s.failed(route(n), uint16(500+i%3)), s.limited(route(n), ratelimit.KeyScope)})
			}
		})
	}
	all.Wait()
	s.stop()
	var occurrences, breaches int64
	for _, e := range s.events() {
		occurrences += e.Data.Occurrences
		if e.Type == event.RateLimitExceeded {
			breaches++
		}
	}
	if occurrences != takers*each || breaches != takers*each/event.SampleRate {
		t.Errorf("%d errors and %d breaches were told", occurrences, breaches)
	}
}

func BenchmarkTakeNoEvent(b *testing.B) {
	s := &site{account: [16]byte{1}, gateway: [16]byte{2}}
	w, err := detect.New(detect.Config{Store: &memoryStore{}, Routes: s})
	if err != nil {
		b.Fatal(err)
	}
	batch := make([]accesslog.Entry, 256)
	for i := range batch {
		batch[i] = s.entry(accesslog.Forwarded, route(0))
	}
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(batch) {
		w.Take(batch)
	}
}
