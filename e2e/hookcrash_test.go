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
)

// pile is a receiver that takes its time and keeps the bodies by their events.
type pile struct {
	*httptest.Server
	mu     sync.Mutex
	bodies map[string]string // by webhook-id
	again  int               // requests for an event that had arrived before
	wrong  []string
	count  atomic.Int64
}

func newPile(t *testing.T) *pile {
	p := &pile{bodies: map[string]string{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *pile) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender died while it sent
	}
	p.mu.Lock()
	id := r.Header.Get("webhook-id")
	before, there := p.bodies[id]
	if there {
		p.again++
	}
	if there && before != string(body) {
		p.wrong = append(p.wrong, fmt.Sprintf("%s came as %q and as %q", id, before, body))
	}
	p.bodies[id] = string(body)
	p.mu.Unlock()
	p.count.Add(1)
	select { // so that some are under way whenever the sender dies
	case <-time.After(10 * time.Millisecond):
	case <-r.Context().Done():
	}
}

// everyEvent returns the identifiers of all events.
func (s *server) everyEvent() map[string]bool {
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

// Guarantee: kill -9 of the server, ten times in the middle of 1,000 deliveries,
// loses no event: each arrives at least once, under one evt_ id and with the same
// bytes, without waiting for a lease of the dead.
func TestKillLosesNoDelivery(t *testing.T) {
	const (
		events = 1000
		rounds = 10
		makers = 4
	)
	p := newPile(t)
	s := startServer(t, "--webhook-allow-network", "127.0.0.0/8")
	before := s.everyEvent() // nobody listened to
	s.newWebhook(p.URL, "key.created")
	admins := make([]string, makers) // each has its own limit of calls
	for i := range admins {
		_, admins[i] = s.newKey(map[string]any{"level": "account"})
	}
	var made atomic.Int64 // acknowledged
	// makeKeys makes keys until there are n, or the server is gone.
	makeKeys := func(n int64) {
		var group sync.WaitGroup
		for _, admin := range admins {
			group.Go(func() {
				for made.Load() < n {
					a, err := s.try(admin, "POST", "/v1/keys", map[string]any{"name": "k", "scope": "read"})
					if err != nil {
						return
					}
					if a.status == http.StatusCreated {
						made.Add(1)
					}
				}
			})
		}
		group.Wait()
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	moments := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		until := int64(events / rounds * (round + 1))
		killAt := p.count.Load() + 10 + moments.Int64N(events/rounds-20)
		gone := make(chan struct{})
		go func() { makeKeys(until); close(gone) }()
		if !eventually(patience, func() bool { return p.count.Load() >= killAt }) {
			t.Fatalf("only %d requests arrived\n%s", p.count.Load(), s.output)
		}
		s.end(syscall.SIGKILL)
		<-gone
		s.start()
		makeKeys(until)
	}
	want := s.everyEvent()
	for id := range before {
		delete(want, id)
	}
	if len(want) < events {
		t.Fatalf("%d events of %d", len(want), events)
	}
	missing := func() (n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for id := range want {
			if _, there := p.bodies[id]; !there {
				n++
			}
		}
		return n
	}
	if !eventually(patience, func() bool { return missing() == 0 }) {
		t.Fatalf("%d of %d events never arrived\n%s", missing(), len(want), s.output)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.wrong {
		t.Error(w)
	}
	if len(p.bodies) > len(want) {
		t.Errorf("%d events arrived of %d", len(p.bodies), len(want))
	}
	t.Logf("%d events arrived; %d requests came again after %d kills", len(want), p.again, rounds)
}
