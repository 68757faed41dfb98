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
)

// watched is a queue that notes who finished what, and that gives its sender no
// second share of the work before the other has one.
type watched struct {
	sender.Queue
	note  func(results []sender.Result, late int)
	has   chan struct{} // closed when the sender has its first deliveries
	other chan struct{} // has of the other
}

func (w *watched) ClaimDeliveries(ctx context.Context, c sender.Claim) ([]sender.Job, error) {
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

func (w *watched) FinishDeliveries(ctx context.Context, results []sender.Result) (int, error) {
	late, err := w.Queue.FinishDeliveries(ctx, results)
	if err == nil {
		w.note(results, late)
	}
	return late, err
}

// Guarantee: two senders on one database, each with a connection of its own,
// share the work, and never send or finish the same attempt of a delivery twice.
func TestTwoSenders(t *testing.T) {
	const events = 200
	b := newBed(t)
	var (
		mu        sync.Mutex
		delivered int
		finished  = map[string]int{} // by delivery id and attempt
		requests  = map[string]int{}
		by        = map[string]int{} // sender
	)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = read(r)
		mu.Lock()
		defer mu.Unlock()
		attempt := r.Header.Get(webhook.FieldAttempt)
		requests[r.Header.Get(webhook.FieldDelivery)+" "+attempt]++
		if attempt == "1" && len(requests)%4 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	var hooks []string
	for range 3 {
		hooks = append(hooks, b.endpoint(server.URL))
	}
	other, err := openStore(t.Context(), b.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	start := func(name string, db *sqlite.DB, has, otherHas chan struct{}) *sender.Sender {
		cfg := b.config()
		cfg.Backoff = [4]time.Duration{50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond}
		cfg.Queue = &watched{Queue: db, has: has, other: otherHas, note: func(results []sender.Result, late int) {
			mu.Lock()
			defer mu.Unlock()
			by[name] += len(results) - late
			if late > 0 {
				t.Errorf("%d late results", late)
			}
			for i := range results {
				finished[fmt.Sprint(results[i].DeliveryID, " ", results[i].Attempt.Number)]++
				if results[i].State == webhook.Delivered {
					delivered++
				}
			}
		}}
		return b.start(cfg)
	}
	one, two := make(chan struct{}), make(chan struct{})
	senders := []*sender.Sender{start("one", b.db, one, two), start("two", other, two, one)}
	for range events / 50 {
		b.raise(50) // more than one claim takes
		for _, s := range senders {
			s.Wake()
		}
	}
	arrived := func() int {
		mu.Lock()
		defer mu.Unlock()
		return delivered
	}
	b.until("all arrive", func() bool { return arrived() == len(hooks)*events }, func() any { return arrived() })
	for _, s := range senders {
		if err := s.Stop(context.Background()); err != nil { // what they finished is noted
			t.Error(err)
		}
	}
	for _, hook := range hooks {
		if list := b.deliveries(hook); !in(events, webhook.Delivered)(list) {
			t.Errorf("%+v", list)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for request, n := range requests {
		if n != 1 || finished[request] != 1 {
			t.Errorf("%s was sent %d times and finished %d times", request, n, finished[request])
		}
	}
	if len(finished) != len(requests) {
		t.Errorf("%d attempts were finished and %d sent", len(finished), len(requests))
	}
	if by["one"] == 0 || by["two"] == 0 {
		t.Errorf("the work was not shared: %v", by)
	}
}

// Guarantee: a sender whose lease ended while it was away changes nothing: what
// another finished stays as it is.
func TestLateResult(t *testing.T) {
	b := newBed(t)
	hook := b.endpoint("https://receiver.test/")
	b.raise(1)
	now := time.Now()
	claim := func(token string, at time.Time) sender.Job {
		jobs, err := b.db.ClaimDeliveries(t.Context(), sender.Claim{Now: at, Token: token, Until: at.Add(sender.LeaseTime), Limit: 1, EachLimit: 1})
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		return jobs[0]
	}
	finish := func(j sender.Job, status int, state webhook.DeliveryState) (late int) {
		late, err := b.db.FinishDeliveries(t.Context(), []sender.Result{{
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
		t.Errorf("a result without a lease was taken")
	}
	if late := finish(second, 200, webhook.Delivered); late != 0 {
		t.Errorf("the holder's result was not taken")
	}
	if late := finish(first, 500, webhook.Failed); late != 1 {
		t.Errorf("a result without a lease was taken")
	}
	if err := b.db.ReleaseDeliveries(t.Context(), []sender.Lease{first.Lease, second.Lease}); err != nil {
		t.Error(err)
	}
	list := b.deliveries(hook)
	if !in(1, webhook.Delivered)(list) || len(list[0].Attempts) != 1 || list[0].Attempts[0].Status != 200 {
		t.Errorf("%+v", list)
	}
}
