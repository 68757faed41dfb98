package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// slowReceiver is a webhook receiver that takes 10 ms for each request and records the
// bodies by event.
type slowReceiver struct {
	*httptest.Server
	mu         sync.Mutex
	bodies     map[string]string // by webhook-id
	repeats    int               // requests for an event that had been received before
	mismatches []string
	count      atomic.Int64
}

func newSlowReceiver(t *testing.T) *slowReceiver {
	p := &slowReceiver{bodies: map[string]string{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *slowReceiver) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed during the request
	}
	p.mu.Lock()
	id := r.Header.Get("webhook-id")
	before, repeated := p.bodies[id]
	if repeated {
		p.repeats++
	}
	if repeated && before != string(body) {
		p.mismatches = append(p.mismatches, fmt.Sprintf("event %s was delivered as %q and as %q", id, before, body))
	}
	p.bodies[id] = string(body)
	p.mu.Unlock()
	p.count.Add(1)
	select { // so that some deliveries are in progress whenever the sender is killed
	case <-time.After(10 * time.Millisecond):
	case <-r.Context().Done():
	}
}

// allEventIDs returns the identifiers of all events.
func (s *server) allEventIDs() map[string]bool {
	s.t.Helper()
	all, cursor := map[string]bool{}, ""
	for {
		page := s.call(http.StatusOK, "GET", "/v1/events?limit=100"+cursor, nil).json(s.t)
		for _, e := range page["data"].([]any) {
			all[e.(map[string]any)["id"].(string)] = true
		}
		next, ok := page["next_cursor"].(string)
		if !ok {
			return all
		}
		cursor = "&cursor=" + url.QueryEscape(next)
	}
}

// keyCreator creates keys with several clients at once.
type keyCreator struct {
	s      *server
	admins []string     // keys of the clients, since each has its own rate limit
	count  atomic.Int64 // acknowledged creations
}

// create creates keys until there are n, or until the server is killed.
func (c *keyCreator) create(n int64) {
	var group sync.WaitGroup
	for _, admin := range c.admins {
		group.Go(func() {
			for c.count.Load() < n {
				a, err := c.s.try(admin, "POST", "/v1/keys", map[string]any{"name": "k", "scope": "read"})
				if err != nil {
					return
				}
				if a.status == http.StatusCreated {
					c.count.Add(1)
				}
			}
		})
	}
	group.Wait()
}

// missing returns the number of events in want that have not been received.
func (p *slowReceiver) missing(want map[string]bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range want {
		if _, received := p.bodies[id]; !received {
			n++
		}
	}
	return n
}

// Guarantee: kill -9 of the server, ten times during 1,000 deliveries, loses no event.
// Each is delivered at least once, with the same identifier and the same bytes, and
// without waiting for a lease of the killed process to expire.
func TestKillLosesNoDelivery(t *testing.T) {
	const (
		events  = 1000
		rounds  = 10
		clients = 4
	)
	p := newSlowReceiver(t)
	s := startServer(t, "--webhook-allow-network", "127.0.0.0/8")
	before := s.allEventIDs() // not delivered, since there is no endpoint yet
	s.newWebhook(p.URL, "key.created")
	creator := &keyCreator{s: s}
	for range clients {
		_, admin := s.newKey(map[string]any{"level": "account"})
		creator.admins = append(creator.admins, admin)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	moments := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		until := int64(events / rounds * (round + 1))
		killAt := p.count.Load() + 10 + moments.Int64N(events/rounds-20)
		stopped := make(chan struct{})
		go func() { creator.create(until); close(stopped) }()
		if !awaittest.Holds(func() bool { return p.count.Load() >= killAt }) {
			t.Fatalf("got %d requests, want %d\n%s", p.count.Load(), killAt, s.output)
		}
		s.end(syscall.SIGKILL)
		<-stopped
		s.start()
		creator.create(until)
	}
	want := s.allEventIDs()
	for id := range before {
		delete(want, id)
	}
	if len(want) < events {
		t.Fatalf("got %d events, want at least %d", len(want), events)
	}
	if !awaittest.Holds(func() bool { return p.missing(want) == 0 }) {
		t.Fatalf("%d of %d events were not delivered\n%s", p.missing(want), len(want), s.output)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.mismatches {
		t.Error(w)
	}
	if len(p.bodies) > len(want) {
		t.Errorf("%d events were delivered, want %d", len(p.bodies), len(want))
	}
	t.Logf("%d events were delivered, with %d repeated requests after %d kills", len(want), p.repeats, rounds)
}
