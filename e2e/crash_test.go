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

// Guarantee: kill -9 at any moment loses no acknowledged change. The process is
// killed at random moments during 1,000 management calls by 4 clients. After each
// start, every acknowledged key exists in the state of the last acknowledged change.
func TestKillLosesNoAcknowledgedChange(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	s.newGateway(up.URL, nil)
	const (
		calls   = 1000
		callers = 4
		rounds  = 10
	)
	type keyState struct {
		secret  string
		name    string
		revoked bool
	}
	var (
		mu    sync.Mutex
		known = map[string]*keyState{} // acknowledged states, by key ID
		busy  = map[string]bool{}      // keys with a call that is not yet acknowledged
		made  atomic.Int64             // calls
	)
	// Each client has its own key, because the management API limits each key to
	// 100 calls a second.
	admins := make([]string, callers)
	for i := range admins {
		_, admins[i] = s.newKey(map[string]any{"level": "account", "name": fmt.Sprintf("admin %d", i)})
	}
	act := func(r *rand.Rand, admin string) {
		mu.Lock()
		var id string
		for k, l := range known { // any active key without a call in progress
			if !l.revoked && !busy[k] {
				id = k
				break
			}
		}
		if id != "" {
			busy[id] = true // so that no other client changes it meanwhile
		}
		mu.Unlock()
		switch choice := r.IntN(4); {
		case id == "" || choice <= 1:
			if id != "" {
				mu.Lock()
				delete(busy, id)
				mu.Unlock()
			}
			name := fmt.Sprintf("key %d", r.Int64())
			a, err := s.try(admin, "POST", "/v1/keys", map[string]any{"name": name, "scope": "admin"})
			if err != nil || a.status != http.StatusCreated {
				return
			}
			m := a.json(t)
			mu.Lock()
			known[m["key_id"].(string)] = &keyState{secret: m["key"].(string), name: name}
			mu.Unlock()
		case choice == 2:
			name := fmt.Sprintf("renamed %d", r.Int64())
			if a, err := s.try(admin, "PATCH", "/v1/keys/"+id, map[string]any{"name": name}); err == nil && a.status == http.StatusOK {
				mu.Lock()
				known[id].name = name
				delete(busy, id)
				mu.Unlock()
			}
		default:
			if a, err := s.try(admin, "DELETE", "/v1/keys/"+id, nil); err == nil && a.status == http.StatusOK {
				mu.Lock()
				known[id].revoked = true
				delete(busy, id)
				mu.Unlock()
			}
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	moments := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		var group sync.WaitGroup
		killAt := made.Load() + calls/rounds*3/4 + moments.Int64N(calls/rounds/4)
		until := made.Load() + calls/rounds
		reached := make(chan struct{})
		var once sync.Once
		for caller := range callers {
			group.Go(func() {
				r := rand.New(rand.NewPCG(uint64(round), uint64(caller)))
				for {
					n := made.Add(1)
					if n > until {
						return
					}
					if n >= killAt {
						once.Do(func() { close(reached) })
					}
					act(r, admins[caller])
				}
			})
		}
		<-reached
		s.end(syscall.SIGKILL)
		group.Wait()
		made.Store(until)
		s.start()
		for id, l := range known {
			if busy[id] {
				delete(known, id)
				continue
			}
			a, err := s.try(admins[round%callers], "GET", "/v1/keys/"+id, nil)
			for err == nil && a.status == http.StatusTooManyRequests {
				a, err = s.try(admins[moments.IntN(callers)], "GET", "/v1/keys/"+id, nil)
			}
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("round %d: the acknowledged key %s is lost: error %v, got status %d, want 200\n%s", round, id, err, a.status, a.body)
			}
			m := a.json(t)
			wantState := "active"
			if l.revoked {
				wantState = "revoked"
			}
			if m["name"] != l.name || m["state"] != wantState {
				t.Fatalf("round %d: key %s: got name %q, state %v, want the acknowledged %q, %v", round, id, m["name"], m["state"], l.name, wantState)
			}
			want := http.StatusOK
			if l.revoked {
				want = http.StatusUnauthorized
			}
			if got := s.sendStatus("GET", "/x", l.secret); got != want {
				t.Fatalf("round %d: a request with a key that is %s: got status %d, want %d", round, wantState, got, want)
			}
		}
		busy = map[string]bool{}
	}
	if len(known) < 100 {
		t.Fatalf("only %d keys were acknowledged and checked, want at least 100 for the test to prove anything", len(known))
	}
	t.Logf("%d acknowledged keys survived %d kills", len(known), rounds)
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
