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

// slowing is a receiver that responds at once, so that a sender holds many deliveries for it,
// until it becomes slow: then each response takes a second.
type slowing struct {
	mu       sync.Mutex
	slow     bool
	status   int
	requests map[string]int // by path, since it became slow
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

// slowDown makes the receiver slow; it then responds with status.
func (s *slowing) slowDown(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow, s.status, s.requests = true, status, map[string]int{}
}

func (s *slowing) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[path]
}

// warm makes a sender measure that an endpoint is fast.
func (h *harness) warm(s *sender.Sender, hook string) {
	h.t.Helper()
	const events = 600
	h.raise(events)
	s.Wake()
	h.await(hook, "the first deliveries are delivered", in(events, webhook.Delivered))
}

// Guarantee: deliveries that are not in flight when an endpoint is changed are sent to its
// new URL, and none to the old one.
func TestRecallSendsToTheNewURL(t *testing.T) {
	receiver := &slowing{}
	virtual(t, receiver.ServeHTTP, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
		hook := h.endpoint("http://receiver.test/old")
		s := h.start(h.config(), connect)
		h.warm(s, hook)
		receiver.slowDown(http.StatusNoContent)
		h.raise(300)
		s.Wake()
		h.until("many deliveries are held", func() bool { return s.Stats().Held > 2*sender.MaxWindow }, func() any { return s.Stats() })
		h.update(func(tx control.Tx) error {
			w, err := tx.Webhook(context.Background(), h.owner, hook)
			if err != nil {
				return err
			}
			w.URL = "http://receiver.test/new"
			return tx.UpdateWebhook(context.Background(), w)
		})
		<-time.After(500 * time.Millisecond) // between two responses
		before := receiver.count("/old")
		s.Recall(hook)
		h.tick = 15 * time.Second // checking so many deliveries is expensive
		h.await(hook, "all deliveries are delivered", in(900, webhook.Delivered))
		if more := receiver.count("/old") - before; more != 0 {
			t.Errorf("got %d more requests to the old URL, want none", more)
		}
		if got := receiver.count("/new"); got != 300-before {
			t.Errorf("got %d requests to the new URL, want %d", got, 300-before)
		}
	})
}

// slowStore is a queue in which recording results can be delayed.
type slowStore struct {
	sender.Queue
	hold atomic.Pointer[chan struct{}] // recording of results waits until it is closed; nil for no wait
}

func (q *slowStore) FinishDeliveries(ctx context.Context, results []sender.Result) (int, error) {
	if hold := q.hold.Load(); hold != nil {
		<-*hold
	}
	return q.Queue.FinishDeliveries(ctx, results)
}

// Guarantee: an endpoint that responded with 410 gets no more requests, even before the store
// has recorded that it is disabled.
func TestNothingIsSentAfter410(t *testing.T) {
	receiver := &slowing{}
	virtual(t, receiver.ServeHTTP, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
		hook, cfg := h.endpoint("http://receiver.test/"), h.config()
		queue := &slowStore{Queue: h.db}
		cfg.Queue = queue
		s := h.start(cfg, connect)
		h.warm(s, hook)
		hold := make(chan struct{})
		queue.hold.Store(&hold)
		receiver.slowDown(http.StatusGone)
		h.raise(1)
		s.Wake()
		<-time.After(2 * time.Second) // the endpoint responded, and the store has not recorded it
		h.raise(100)
		s.Wake()
		<-time.After(10 * time.Second)
		if n := receiver.count("/"); n != 1 {
			t.Errorf("got %d requests to an endpoint whose first response was 410, want 1", n)
		}
		close(hold)
		h.until("the endpoint is disabled", func() bool { return h.webhook(hook).State == webhook.Disabled }, func() any { return h.webhook(hook) })
		<-time.After(time.Minute)
		if n := receiver.count("/"); n != 1 {
			t.Errorf("got %d requests after the endpoint was disabled, want still 1", n)
		}
	})
}
