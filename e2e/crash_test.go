package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// keyState is the acknowledged state of a key.
type keyState struct {
	secret  string
	name    string
	revoked bool
}

// changeModel changes keys at random and records what was acknowledged.
type changeModel struct {
	s      *server
	admins []string // keys of the clients

	mu    sync.Mutex
	known map[string]*keyState // acknowledged states, by key ID
	busy  map[string]bool      // keys with a change that is not acknowledged
	calls atomic.Int64         // made so far
}

// newChangeModel returns a model with a key for each client, because the management API
// limits each key to 100 calls a second.
func newChangeModel(s *server, clients int) *changeModel {
	m := &changeModel{s: s, known: map[string]*keyState{}, busy: map[string]bool{}}
	for i := range clients {
		_, key := s.newKey(map[string]any{"level": "account", "name": fmt.Sprintf("admin %d", i)})
		m.admins = append(m.admins, key)
	}
	return m
}

// acquire returns an active key without a call in progress, and marks it as busy. It
// returns "" if there is none.
func (m *changeModel) acquire() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, k := range m.known {
		if !k.revoked && !m.busy[id] {
			m.busy[id] = true
			return id
		}
	}
	return ""
}

// acknowledge applies an acknowledged change to a busy key.
func (m *changeModel) acknowledge(id string, change func(*keyState)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m.known[id])
	delete(m.busy, id)
}

// change creates, renames or revokes a key. A key whose change gets no response stays
// busy.
func (m *changeModel) change(r *rand.Rand, admin string) {
	id := m.acquire()
	switch choice := r.IntN(4); {
	case id == "" || choice <= 1:
		if id != "" {
			m.acknowledge(id, func(*keyState) {})
		}
		m.create(admin, fmt.Sprintf("key %d", r.Int64()))
	case choice == 2:
		name := fmt.Sprintf("renamed %d", r.Int64())
		if a, err := m.s.try(admin, "PATCH", "/v1/keys/"+id, map[string]any{"name": name}); err == nil && a.status == http.StatusOK {
			m.acknowledge(id, func(k *keyState) { k.name = name })
		}
	default:
		if a, err := m.s.try(admin, "DELETE", "/v1/keys/"+id, nil); err == nil && a.status == http.StatusOK {
			m.acknowledge(id, func(k *keyState) { k.revoked = true })
		}
	}
}

func (m *changeModel) create(admin, name string) {
	a, err := m.s.try(admin, "POST", "/v1/keys", map[string]any{"name": name, "scope": "admin"})
	if err != nil || a.status != http.StatusCreated {
		return
	}
	record := a.json(m.s.t)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[record["key_id"].(string)] = &keyState{secret: record["key"].(string), name: name}
}

// runAndKill makes n calls by all clients and kills the server during the last quarter
// of them.
func (m *changeModel) runAndKill(round, n int, moments *rand.Rand) {
	var group sync.WaitGroup
	until := m.calls.Load() + int64(n)
	killAt := until - int64(n)/4 + moments.Int64N(int64(n)/4)
	reached := make(chan struct{})
	var once sync.Once
	for client, admin := range m.admins {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(round), uint64(client)))
			for {
				call := m.calls.Add(1)
				if call > until {
					return
				}
				if call >= killAt {
					once.Do(func() { close(reached) })
				}
				m.change(r, admin)
			}
		})
	}
	<-reached
	m.s.end(syscall.SIGKILL)
	group.Wait()
	m.calls.Store(until)
}

// check fails the test unless every key is in its acknowledged state, on both planes. It
// forgets the busy keys, whose state is not known.
func (m *changeModel) check(t *testing.T, round int) {
	t.Helper()
	for id, k := range m.known {
		if m.busy[id] {
			delete(m.known, id)
			continue
		}
		a, err := m.get(round, id)
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("round %d: the acknowledged key %s is lost: error %v, got status %d, want 200\n%s", round, id, err, a.status, a.body)
		}
		state, status := "active", http.StatusOK
		if k.revoked {
			state, status = "revoked", http.StatusUnauthorized
		}
		if record := a.json(t); record["name"] != k.name || record["state"] != state {
			t.Fatalf("round %d: key %s: got name %q, state %v, want the acknowledged %q, %v", round, id, record["name"], record["state"], k.name, state)
		}
		if got := m.s.sendStatus("GET", "/x", k.secret); got != status {
			t.Fatalf("round %d: a request with a key that is %s: got status %d, want %d", round, state, got, status)
		}
	}
	m.busy = map[string]bool{}
}

// get reads a key, with the next client's key after a 429.
func (m *changeModel) get(client int, id string) (a response, err error) {
	for ; ; client++ {
		a, err = m.s.try(m.admins[client%len(m.admins)], "GET", "/v1/keys/"+id, nil)
		if err != nil || a.status != http.StatusTooManyRequests {
			return a, err
		}
	}
}

// Guarantee: kill -9 at any moment loses no acknowledged change. The process is
// killed at random moments during 1,000 management calls by 4 clients. After each
// start, every acknowledged key exists in the state of the last acknowledged change.
func TestKillLosesNoAcknowledgedChange(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	s.newGateway(up.URL, nil)
	const (
		calls  = 1000
		rounds = 10
	)
	m := newChangeModel(s, 4)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	moments := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		m.runAndKill(round, calls/rounds, moments)
		s.start()
		m.check(t, round)
	}
	if len(m.known) < 100 {
		t.Fatalf("only %d keys were acknowledged and checked, want at least 100 for the test to prove anything", len(m.known))
	}
	t.Logf("%d acknowledged keys survived %d kills", len(m.known), rounds)
}

// sendStatus is send, but returns only the status.
func (s *server) sendStatus(method, target, key string) int {
	s.t.Helper()
	a, err := s.send(method, target, key)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, target, err)
	}
	return a.status
}
