package detect_test

import (
	"context"
	"encoding/binary"
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

// harness is one gateway with a Detector over a store.
type harness struct {
	tb
	store            *memoryStore
	detector         *detect.Detector
	account, gateway [16]byte
	woken            atomic.Int64
	full             atomic.Bool // too many events of the account wait
}

func (s *harness) isFull(accountID string) bool {
	return s.full.Load() && accountID == id.Format(id.Account, s.account)
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

// Guarantee: the counts of deleted routes do not keep other routes from making events.
func TestCountsOfDeletedRoutesAreForgotten(t *testing.T) {
	s := open(t)
	defer s.stop()
	const counts, batch = 1 << 17, 4096 // the maximum number of counts, and of waiting breaches
	existing := s.gateway
	s.gateway = [16]byte{3} // RoutePath does not know its routes
	entries := make([]accesslog.Entry, 0, counts)
	for i := range counts {
		e := s.limited(numbered(i), ratelimit.RouteScope)
		e.Account = [16]byte{1, byte(i / batch)} // none raises too many
		entries = append(entries, e)
	}
	s.gateway = existing
	for part := range slices.Chunk(entries, batch) {
		s.detector.Take(part)
		if err := s.detector.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.detector.Take([]accesslog.Entry{s.limited(route(0), ratelimit.RouteScope)})
	if err := s.detector.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lost, events := s.detector.Lost(), len(s.store.events); lost != 0 || events != counts+1 {
		t.Errorf("%d lost and %d events, want 0 and %d", lost, events, counts+1)
	}
}

// route returns the identifier of the route number n.
func route(n int) [16]byte { return [16]byte{15: byte(n + 1)} }

// RoutePath implements detect.Routes.
func (s *harness) RoutePath(gatewayID, routeID string, micros int64) string {
	if 0 < micros && micros < 10 { // a time that only a test for it uses
		return fmt.Sprintf("/moved/%d", micros)
	}
	if u, ok := id.Parse(id.Route, routeID); ok && gatewayID == id.Format(id.Gateway, s.gateway) {
		return fmt.Sprintf("/route/%d/{id}", u[15]-1)
	}
	return ""
}

// open returns a started harness.
func open(t tb) *harness {
	t.Helper()
	s := &harness{tb: t, account: [16]byte{1}, gateway: [16]byte{2}, store: &memoryStore{known: map[string]bool{}}}
	s.start()
	return s
}

func (s *harness) start() {
	s.Helper()
	var err error
	if s.detector, err = detect.New(detect.Config{Store: s.store, Routes: s, Wake: func() { s.woken.Add(1) }, Full: s.isFull}); err != nil {
		s.Fatal(err)
	}
	if err := s.detector.Start(context.Background()); err != nil {
		s.Fatal(err)
	}
}

func (s *harness) stop() {
	s.Helper()
	if err := s.detector.Stop(context.Background()); err != nil {
		s.Fatal(err)
	}
}

func (s *harness) entry(d accesslog.Result, r [16]byte) accesslog.Entry {
	return accesslog.Entry{Path: "/route/0/7", Record: accesslog.Record{
		Account: s.account, Gateway: s.gateway, Route: r, Key: [16]byte{9}, Request: id.NewFast(), Method: accesslog.GET,
		Result: d, Prefix: [10]byte([]byte("kg_AbCdEf\x00")), Status: 200, UpstreamStatus: 200,
	}}
}

func (s *harness) limited(r [16]byte, scope ratelimit.Scope) accesslog.Entry {
	e := s.entry(accesslog.Limited, r)
	e.Status, e.UpstreamStatus, e.LimitScope, e.Limit = 429, 0, uint8(scope), 50
	return e
}

func (s *harness) failed(r [16]byte, status uint16) accesslog.Entry {
	e := s.entry(accesslog.Forwarded, r)
	e.Status, e.UpstreamStatus = status, status
	return e
}

// received is an event as an endpoint receives it.
type received struct {
	Type      event.Type
	CreatedAt time.Time `json:"created_at"`
	Data      struct {
		event.UpstreamError
		KeyID      *string `json:"key_id"`
		KeyPrefix  *string `json:"key_prefix"`
		LimitScope string  `json:"limit_scope"`
		LimitName  string  `json:"limit_name"`
		Limit      int64
		SampleRate int `json:"sample_rate"`
		Breaches   int64
	}
}

// events returns all stored events in their order.
func (s *harness) events() []received {
	s.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	var all []received
	for _, e := range s.store.events {
		var t received
		if err := json.Unmarshal(e.Payload, &t); err != nil {
			s.Fatal(err)
		}
		if want := id.Format(id.Account, s.account); e.AccountID != want || t.Type != e.Type || !t.CreatedAt.Equal(e.CreatedAt) {
			s.Fatalf("event %+v has payload %+v, want the same account, type and time", e, t)
		}
		all = append(all, t)
	}
	return all
}

// Guarantee: the event about a limit of a plan names the limit.
func TestBreachOfALimitOfAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		defer s.stop()
		e := s.limited(route(0), ratelimit.PlanScope)
		e.Detail = "pro.per-minute"
		s.detector.Take([]accesslog.Entry{e})
		if err := s.detector.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all := s.events(); len(all) != 1 || all[0].Data.LimitScope != "plan" || all[0].Data.LimitName != "pro.per-minute" {
			t.Errorf("got the events %+v, want one of the limit pro.per-minute", all)
		}
	})
}

// Guarantee: breaches 1, 101, 201, … of each gateway, route and limit scope make an event with the
// key of the breaching request.
func TestBreachesAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		defer s.stop()
		for i := range 250 {
			second := s.limited(route(1), ratelimit.GlobalScope)
			second.Key, second.Prefix = [16]byte{}, [10]byte{}
			first := s.limited(route(0), ratelimit.KeyScope)
			first.Key[15] = byte(i)
			s.detector.Take([]accesslog.Entry{first, second, s.entry(accesslog.Forwarded, route(0))})
		}
		s.detector.Take([]accesslog.Entry{s.limited(route(0), ratelimit.RouteScope)})
		if err := s.detector.Sync(t.Context()); err != nil {
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

// Guarantee: the first error of a route and status makes an event at once, further ones
// make one together after a second, and after a second without errors the next error counts as a
// first one again. The sender is woken.
func TestErrorsAreGrouped(t *testing.T) {
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
				t.Fatalf("got events with %v occurrences, want %v", got, occurrences)
			}
		}
		s.detector.Take([]accesslog.Entry{s.failed(route(0), 503)})
		want(1)
		for range 5 {
			s.detector.Take([]accesslog.Entry{s.failed(route(0), 503), s.failed(route(0), 503)})
		}
		time.Sleep(999 * time.Millisecond) //nolint:forbidigo // virtual time
		want(1)
		time.Sleep(time.Millisecond) //nolint:forbidigo // virtual time
		want(1, 10)
		time.Sleep(300 * time.Millisecond) //nolint:forbidigo // virtual time
		s.detector.Take([]accesslog.Entry{s.failed(route(0), 503)})
		time.Sleep(700 * time.Millisecond) //nolint:forbidigo // virtual time
		want(1, 10, 1)
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		want(1, 10, 1)
		s.detector.Take([]accesslog.Entry{s.failed(route(0), 503)})
		want(1, 10, 1, 1)
		if s.woken.Load() == 0 {
			t.Error("the sender was not woken")
		}
	})
}

// Guarantee: events have the path that the route had when the request began, also if it
// moved since the previous event.
func TestEventsHaveThePathOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		defer s.stop()
		failed, refused := s.failed(route(0), 503), s.limited(route(0), ratelimit.KeyScope)
		s.detector.Take([]accesslog.Entry{failed})
		synctest.Wait()
		failed.Start, refused.Start = 1, 2
		s.detector.Take([]accesslog.Entry{failed, refused})
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		synctest.Wait()
		var got []string
		for _, e := range s.events() {
			got = append(got, e.Data.Path)
		}
		if want := []string{"/route/0/{id}", "/moved/2", "/moved/1"}; !slices.Equal(got, want) {
			t.Errorf("got events with the paths %q, want %q", got, want)
		}
	})
}

// Guarantee: a timeout, an unreachable upstream and a 5xx response of the upstream make
// events with their reasons, also if the client hung up; Keygate's own errors and requests
// that have only started make none.
func TestErrorsHaveReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		defer s.stop()
		timeout, unreachable, own := s.entry(accesslog.TimedOut, route(0)), s.entry(accesslog.Unreachable, route(0)), s.entry(accesslog.Failed, route(0))
		timeout.Status, timeout.UpstreamStatus = 504, 0
		unreachable.Status, unreachable.UpstreamStatus = 502, 0
		own.Status, own.UpstreamStatus = 503, 0
		hungUp := s.failed(route(1), 500)
		hungUp.Result, hungUp.Status = accesslog.Abandoned, 499
		started := s.failed(route(1), 501)
		started.Part = accesslog.Started
		s.detector.Take([]accesslog.Entry{timeout, unreachable, own, hungUp, started})
		synctest.Wait()
		var got []string
		for _, e := range s.events() {
			got = append(got, fmt.Sprintf("%s %d %s %s", e.Data.Path, e.Data.Status, e.Data.Reason, e.Data.Method))
		}
		if want := []string{"/route/0/{id} 504 timeout GET", "/route/0/{id} 502 unreachable GET", "/route/1/{id} 500 upstream_status GET"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if first, want := s.events()[0].Data.RequestID, id.Format(id.Request, timeout.Request); first != want {
			t.Errorf("the first event has request %s, want %s", first, want)
		}
	})
}

// Guarantee: through restarts and failures of the store, the occurrences of each route and
// status add up to its errors exactly, there is at most one event for them in a second
// except at restarts, and every hundredth breach of each count makes an event.
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
				s.detector.Take([]accesslog.Entry{s.failed(route(st.route), st.status)})
			}
		case "breaches":
			for range st.n {
				if breaches[name]%event.SampleRate == 0 {
					sampled[name]++
				}
				breaches[name]++
				s.detector.Take([]accesslog.Entry{s.limited(route(st.route), ratelimit.RouteScope)})
			}
		case "wait":
			time.Sleep(st.wait) //nolint:forbidigo // virtual time
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
			t.Errorf("got two events of %v within %v, want at least 1s between them", name, e.CreatedAt.Sub(last[name]))
		}
		last[name] = e.CreatedAt
	}
	for name, left := range errs {
		if left != 0 {
			t.Errorf("%d errors of %v are in no event, want 0", left, name)
		}
	}
	for name, left := range sampled {
		if left != 0 {
			t.Errorf("%d sampled breaches of %s made no event, want 0", left, name)
		}
	}
	if s.detector.Lost() != 0 {
		t.Errorf("%d were lost, want 0", s.detector.Lost())
	}
}

// Guarantee: a failing store does not block Take. Errors wait in their counts and breaches
// in a bounded queue, and breaches beyond it are counted as lost.
func TestFailingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.store.set(true, false)
		const routes, each = 5000, 3
		for i := range routes {
			r := [16]byte{1, 14: byte(i >> 8), 15: byte(i)}
			for range each {
				s.detector.Take([]accesslog.Entry{s.limited(r, ratelimit.RouteScope), s.failed(r, 500)})
			}
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // virtual time
		lost := s.detector.Lost()
		if lost == 0 || lost >= routes {
			t.Errorf("%d of %d breaches were lost, want some and not all", lost, routes)
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
			t.Errorf("got events for %d breaches and %d errors with %d lost, want %d and %d", breaches, occurrences, lost, routes-int64(lost), routes*each)
		}
	})
}

// Guarantee: Take may be called concurrently with writing.
func TestConcurrentTake(t *testing.T) {
	s := open(t)
	var all sync.WaitGroup
	const takers, each = 4, 500
	for n := range takers {
		all.Go(func() {
			for i := range each {
				s.detector.Take([]accesslog.Entry{s.failed(route(n), uint16(500+i%3)), s.limited(route(n), ratelimit.KeyScope)})
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
		t.Errorf("got events for %d errors and %d breaches, want %d and %d", occurrences, breaches, takers*each, takers*each/event.SampleRate)
	}
}

// Guarantee: while too many events of an account wait for their deliveries to be written, it gets no more. Its errors are
// counted in a later event, and breaches that would have made an event are lost and counted.
func TestAccountWithTooManyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.full.Store(true)
		for range 5 {
			s.detector.Take([]accesslog.Entry{s.failed(route(0), 503), s.limited(route(1), ratelimit.RouteScope)})
			<-time.After(time.Second) // on the bubble's clock
		}
		if err := s.detector.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(s.events()); n != 0 {
			t.Errorf("%d events of an account that has too many", n)
		}
		if lost := s.detector.Lost(); lost != 1 { // the first breach of 100
			t.Errorf("%d breaches are lost, want 1", lost)
		}
		s.full.Store(false)
		<-time.After(2 * time.Second) // on the bubble's clock
		synctest.Wait()
		if got := s.events(); len(got) != 1 || got[0].Data.Occurrences != 5 {
			t.Errorf("got events %+v, want one of 5 errors", got)
		}
		s.full.Store(true)
		s.detector.Take([]accesslog.Entry{s.failed(route(2), 503)})
		s.stop()
		if got := s.events(); len(got) != 2 || got[1].Data.Occurrences != 1 {
			t.Errorf("got events %+v after the end, want the last error too", got)
		}
	})
}

func BenchmarkTakeNoEvent(b *testing.B) {
	s := &harness{account: [16]byte{1}, gateway: [16]byte{2}}
	d, err := detect.New(detect.Config{Store: &memoryStore{}, Routes: s})
	if err != nil {
		b.Fatal(err)
	}
	batch := make([]accesslog.Entry, 256)
	for i := range batch {
		batch[i] = s.entry(accesslog.Forwarded, route(0))
	}
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(batch) {
		d.Take(batch)
	}
}

// Guarantee: docs/limits.md. An account whose limits or upstreams fail very many requests raises 10,000 events of each type at once
// and then one a second. Errors beyond that are in a later event, and breaches are lost and counted. Other accounts raise theirs.
func TestEventsOfAnAccountAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		defer s.stop()
		const first, more, wait = 10_000, 700, 100
		count := func() (breaches, errors, occurrences, others int64) {
			t.Helper()
			if err := s.detector.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.store.mu.Lock()
			defer s.store.mu.Unlock()
			for _, e := range s.store.events {
				var content received
				switch err := json.Unmarshal(e.Payload, &content); {
				case err != nil:
					t.Fatal(err)
				case e.AccountID != id.Format(id.Account, s.account):
					others++
				case e.Type == event.RateLimitExceeded:
					breaches++
				default:
					errors++
					occurrences += content.Data.Occurrences
				}
			}
			return breaches, errors, occurrences, others
		}
		for i := range first + more { // the first breach and the first error of a route make an event each
			s.detector.Take([]accesslog.Entry{s.limited(numbered(i), ratelimit.RouteScope), s.failed(numbered(i), 503)})
			if i%1000 == 0 {
				if err := s.detector.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		foreign := s.limited(numbered(0), ratelimit.GlobalScope)
		foreign.Account[0] = 7
		s.detector.Take([]accesslog.Entry{foreign})
		if breaches, errors, occurrences, others := count(); breaches != first || errors != first || occurrences != first || others != 1 || s.detector.Lost() != more {
			t.Errorf("got %d breaches, %d lost, %d errors of %d requests and %d of others; want %d, %d, %d of %d and 1",
				breaches, s.detector.Lost(), errors, occurrences, others, first, more, first, first)
		}
		<-time.After(wait*time.Second + time.Second/2) // on the bubble's clock
		for i := range more {
			s.detector.Take([]accesslog.Entry{s.limited(numbered(i), ratelimit.KeyScope)})
		}
		if breaches, errors, _, _ := count(); breaches != first+wait || errors < first+wait-1 || errors > first+wait {
			t.Errorf("got %d breaches and %d errors %d seconds later, want %d each", breaches, errors, wait, first+wait)
		}
		<-time.After(more * time.Second) // on the bubble's clock
		if _, _, occurrences, _ := count(); occurrences != first+more {
			t.Errorf("got events of %d errors in the end, want all %d", occurrences, first+more)
		}
	})
}

// numbered returns the identifier of one of very many routes.
func numbered(i int) (u [16]byte) {
	binary.BigEndian.PutUint32(u[12:], uint32(i)+1)
	return u
}
