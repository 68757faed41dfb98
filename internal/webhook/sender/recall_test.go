package sender_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// slowing is a receiver that answers at once, so that a sender takes on much for
// it, until slow: then every answer takes a second.
type slowing struct {
	mu       sync.Mutex
	slow     bool
	status   int
	requests map[string]int // by path, since slow
}

func (s *slowing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	slow, status := s.slow, s.status
	if slow {
		s.requests[r.URL.Path]++
	}
	s.mu.Unlock()
	if slow {
		<-time.After(time.Second)
	} else {
		status = http.StatusNoContent
	}
	w.WriteHeader(status)
}

func (s *slowing) begin(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow, s.status, s.requests = true, status, map[string]int{}
}

func (s *slowing) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[path]
}

// warm lets a sender learn that an endpoint is fast.
func (b *bed) warm(s *sender.Sender, hook string) {
	b.t.Helper()
	const events = 600
	b.raise(events)
	s.Wake()
	b.await(hook, "the first are delivered", in(events, webhook.Delivered))
}

// Guarantee: what is not yet on the way when an endpoint is changed goes out as it
// then stands: nothing more to the address that it had.
func TestRecall(t *testing.T) {
	receiver := &slowing{}
	virtual(t, receiver.ServeHTTP, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
		hook := b.endpoint("http://receiver.test/old")
		s := b.start(b.config(), connect)
		b.warm(s, hook)
		receiver.begin(http.StatusNoContent)
		b.raise(300)
		s.Wake()
		b.until("much is held", func() bool { return s.Stats().Held > 2*sender.MaxWindow }, func() any { return s.Stats() })
		b.update(func(tx control.Tx) error {
			w, err := tx.Webhook(context.Background(), b.owner, hook)
			if err != nil {
				return err
			}
			w.URL = "http://receiver.test/new"
			return tx.UpdateWebhook(context.Background(), w)
		})
		<-time.After(500 * time.Millisecond) // between two answers
		before := receiver.count("/old")
		s.Recall(hook)
		b.tick = 15 * time.Second // a look at so many costs much
		b.await(hook, "all are delivered", in(900, webhook.Delivered))
		if more := receiver.count("/old") - before; more != 0 || receiver.count("/new") != 300-before {
			t.Errorf("%d requests more to the old address, %d to the new one", more, receiver.count("/new"))
		}
	})
}

// slowStore is a queue that is told of results late.
type slowStore struct {
	sender.Queue
	hold atomic.Pointer[chan struct{}] // closed when it may be told; nil for at once
}

func (q *slowStore) FinishDeliveries(ctx context.Context, results []sender.Result) (int, error) {
	if hold := q.hold.Load(); hold != nil {
		<-*hold
	}
	return q.Queue.FinishDeliveries(ctx, results)
}

// Guarantee: an endpoint that answered 410 gets nothing more, even before the store
// knows that it is disabled.
func TestNothingAfterGone(t *testing.T) {
	receiver := &slowing{}
	virtual(t, receiver.ServeHTTP, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
		hook, cfg := b.endpoint("http://receiver.test/"), b.config()
		queue := &slowStore{Queue: b.db}
		cfg.Queue = queue
		s := b.start(cfg, connect)
		b.warm(s, hook)
		hold := make(chan struct{})
		queue.hold.Store(&hold)
		receiver.begin(http.StatusGone)
		b.raise(1)
		s.Wake()
		<-time.After(2 * time.Second) // it answered, and the store waits
		b.raise(100)
		s.Wake()
		<-time.After(10 * time.Second)
		if n := receiver.count("/"); n != 1 {
			t.Errorf("%d requests to an endpoint whose first answer was 410", n)
		}
		close(hold)
		b.until("the endpoint is disabled", func() bool { return b.webhook(hook).State == webhook.Disabled }, func() any { return b.webhook(hook) })
		<-time.After(time.Minute)
		if n := receiver.count("/"); n != 1 {
			t.Errorf("%d requests to a disabled endpoint", n)
		}
	})
}
