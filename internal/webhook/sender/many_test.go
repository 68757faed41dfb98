package sender_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
	"github.com/keygate/keygate/internal/webhook/sender/sendertest"
)

// observed is a queue that reports the results of its sender, and delays the sender's second claim
// until the other sender has deliveries too.
type observed struct {
	sender.Queue
	note  func(results []sender.Result, late int)
	has   chan struct{} // closed when this sender has its first deliveries
	other chan struct{} // deliveries of the other sender
}

func (w *observed) ClaimDeliveries(ctx context.Context, c sender.Claim) ([]sender.Job, error) {
	has := closed(w.has)
	if has {
		select {
		case <-w.other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	jobs, err := w.Queue.ClaimDeliveries(ctx, c)
	if len(jobs) > 0 && !has {
		close(w.has)
	}
	return jobs, err
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (w *observed) FinishDeliveries(ctx context.Context, results []sender.Result) (int, error) {
	late, err := w.Queue.FinishDeliveries(ctx, results)
	if err == nil {
		w.note(results, late)
	}
	return late, err
}

// tally counts what two senders do with deliveries.
type tally struct {
	t         *testing.T
	mu        sync.Mutex
	requests  map[string]int // by delivery and attempt
	finished  map[string]int // likewise
	bySender  map[string]int // finished attempts
	delivered int
}

// ServeHTTP is a receiver that fails a fourth of the first attempts.
func (c *tally) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = read(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	attempt := r.Header.Get(webhook.FieldAttempt)
	c.requests[r.Header.Get(webhook.FieldDelivery)+" "+attempt]++
	if attempt == "1" && len(c.requests)%4 == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// finish counts the results of a sender.
func (c *tally) finish(name string, results []sender.Result, late int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bySender[name] += len(results) - late
	if late > 0 {
		c.t.Errorf("got %d late results, want none", late)
	}
	for i := range results {
		c.finished[fmt.Sprint(results[i].DeliveryID, " ", results[i].Attempt.Number)]++
		if results[i].State == webhook.Delivered {
			c.delivered++
		}
	}
}

func (c *tally) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delivered
}

// check checks that every attempt was sent and finished once, and that both senders worked.
func (c *tally) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for request, n := range c.requests {
		if n != 1 || c.finished[request] != 1 {
			c.t.Errorf("%s was sent %d times and finished %d times, want once each", request, n, c.finished[request])
		}
	}
	if len(c.finished) != len(c.requests) {
		c.t.Errorf("%d attempts were finished, but %d were sent", len(c.finished), len(c.requests))
	}
	if c.bySender["one"] == 0 || c.bySender["two"] == 0 {
		c.t.Errorf("the work was not shared: %v", c.bySender)
	}
}

// Guarantee: two senders of one database, each with its own connections, share the work and
// never send or finish an attempt of a delivery twice.
func TestTwoSendersShareTheWork(t *testing.T) {
	const events = 200
	h := newHarness(t)
	c := &tally{t: t, requests: map[string]int{}, finished: map[string]int{}, bySender: map[string]int{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	var hooks []string
	for i := range 3 {
		hooks = append(hooks, h.endpoint(fmt.Sprint(server.URL, "/", i)))
	}
	other, err := openStore(t.Context(), h.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	start := func(name string, db *sqlite.DB, has, otherHas chan struct{}) *sender.Sender {
		cfg := h.config()
		cfg.Backoff = [4]time.Duration{50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond}
		cfg.Queue = &observed{Queue: db, has: has, other: otherHas, note: func(results []sender.Result, late int) { c.finish(name, results, late) }}
		return h.start(cfg)
	}
	one, two := make(chan struct{}), make(chan struct{})
	senders := []*sender.Sender{start("one", h.db, one, two), start("two", other, two, one)}
	for range events / 50 {
		h.raise(50) // more than one claim leases
		for _, s := range senders {
			s.Wake()
		}
	}
	h.until("everything is delivered", func() bool { return c.count() == len(hooks)*events }, func() any { return c.count() })
	for _, s := range senders {
		if err := s.Stop(context.Background()); err != nil { // afterwards all results are counted
			t.Error(err)
		}
	}
	for _, hook := range hooks {
		if list := h.deliveries(hook); !in(events, webhook.Delivered)(list) {
			t.Errorf("not all deliveries are delivered: %+v", list)
		}
	}
	c.check()
}

// Guarantee: a result whose lease has passed to another sender changes nothing, before and
// after the other sender finished the delivery.
func TestLateResultChangesNothing(t *testing.T) {
	h := newHarness(t)
	hook := h.endpoint("https://receiver.test/")
	h.raise(1)
	now := time.Now()
	claim := func(token string, at time.Time) sender.Job {
		jobs, err := sendertest.ClaimAll(t.Context(), h.db, sender.Claim{Now: at, Token: token, Until: at.Add(sender.LeaseTime)}, 1)
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		return jobs[0]
	}
	finish := func(j sender.Job, status int, state webhook.DeliveryState) (late int) {
		late, err := h.db.FinishDeliveries(t.Context(), []sender.Result{{
			Lease: j.Lease, State: state, Attempt: webhook.Attempt{Number: j.Attempt, StartedAt: now, Status: status},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return late
	}
	first := claim("first", now)
	second := claim("second", now.Add(sender.LeaseTime+time.Second))
	if late := finish(first, 500, webhook.Failed); late != 1 {
		t.Errorf("a result without a lease was recorded before the other sender finished")
	}
	if late := finish(second, 200, webhook.Delivered); late != 0 {
		t.Errorf("the result of the sender with the lease was not recorded")
	}
	if late := finish(first, 500, webhook.Failed); late != 1 {
		t.Errorf("a result without a lease was recorded after the other sender finished")
	}
	if err := h.db.ReleaseDeliveries(t.Context(), []sender.Lease{first.Lease, second.Lease}); err != nil {
		t.Error(err)
	}
	list := h.deliveries(hook)
	if !in(1, webhook.Delivered)(list) || len(list[0].Attempts) != 1 || list[0].Attempts[0].Status != 200 {
		t.Errorf("got %+v, want one delivered with one attempt of status 200", list)
	}
}
