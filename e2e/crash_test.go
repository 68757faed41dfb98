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
// killed at random during 1,000 management calls by 4 callers; after each
// start everything acknowledged is there, in the state that the last
// acknowledged call left it in.
func TestKillLosesNoAcknowledgedChange(t *testing.T) {
	up := newRecorder(t)
	s := startServer(t)
	s.newGateway(up.URL, nil)
	const (
		calls   = 1000
		callers = 4
		rounds  = 10
	)
	type life struct {
		secret  string
		name    string
		revoked bool
	}
	var (
		mu    sync.Mutex
		known = map[string]*life{} // acknowledged
		vague = map[string]bool{}  // a call about it got no answer
		made  atomic.Int64
	)
	// The management API's own limit is 100 calls a second for each key; the
	// callers have one key each, as different people would.
	admins := make([]string, callers)
	for i := range admins {
		_, admins[i] = s.newKey(map[string]any{"level": "account", "name": fmt.Sprintf("admin %d", i)})
	}
	act := func(r *rand.Rand, admin string) {
		mu.Lock()
		var id string
		for k, l := range known { // any key that lives and that nobody is unsure of
			if !l.revoked && !vague[k] {
				id = k
				break
			}
		}
		if id != "" {
			vague[id] = true // nobody else touches it meanwhile
		}
		mu.Unlock()
		switch choice := r.IntN(4); {
		case id == "" || choice <= 1:
			if id != "" {
				mu.Lock()
				delete(vague, id)
				mu.Unlock()
			}
			name := fmt.Sprintf("key %d", r.Int64())
			a, err := s.try(admin, "POST", "/v1/keys", map[string]any{"name": name, "scope": "admin"})
			if err != nil || a.status != http.StatusCreated {
				return
			}
			m := a.json(t)
			mu.Lock()
			known[m["key_id"].(string)] = &life{secret: m["key"].(string), name: name}
			mu.Unlock()
		case choice == 2:
			name := fmt.Sprintf("renamed %d", r.Int64())
			if a, err := s.try(admin, "PATCH", "/v1/keys/"+id, map[string]any{"name": name}); err == nil && a.status == http.StatusOK {
				mu.Lock()
				known[id].name = name
				delete(vague, id)
				mu.Unlock()
			}
		default:
			if a, err := s.try(admin, "DELETE", "/v1/keys/"+id, nil); err == nil && a.status == http.StatusOK {
				mu.Lock()
				known[id].revoked = true
				delete(vague, id)
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
			if vague[id] {
				delete(known, id)
				continue
			}
			a, err := s.try(admins[round%callers], "GET", "/v1/keys/"+id, nil)
			for err == nil && a.status == http.StatusTooManyRequests {
				a, err = s.try(admins[moments.IntN(callers)], "GET", "/v1/keys/"+id, nil)
			}
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("round %d: key %s was acknowledged and is gone: %v %d %s", round, id, err, a.status, a.body)
			}
			m := a.json(t)
			wantState := "active"
			if l.revoked {
				wantState = "revoked"
			}
			if m["name"] != l.name || m["state"] != wantState {
				t.Fatalf("round %d: key %s is %q, %v; acknowledged %q, %v", round, id, m["name"], m["state"], l.name, wantState)
			}
			want := http.StatusOK
			if l.revoked {
				want = http.StatusUnauthorized
			}
			if got := s.mustThroughAny("GET", "/x", l.secret); got != want {
				t.Fatalf("round %d: a %s key gives %d on the data plane", round, wantState, got)
			}
		}
		vague = map[string]bool{}
	}
	if len(known) < 100 {
		t.Fatalf("only %d keys were acknowledged and checked; the test shows too little", len(known))
	}
	t.Logf("%d acknowledged keys survived %d kills", len(known), rounds)
}

func (s *server) mustThroughAny(method, target, key string) int {
	s.t.Helper()
	a, err := s.through(method, target, key)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, target, err)
	}
	return a.status
}
