package provider_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
	"github.com/keygate/keygate/internal/provider"
)

// world is several nodes' Fetchers in virtual time, between records and providers in memory. Package control's tests and
// e2e use real stores; here only time matters.
type world struct {
	t     *testing.T
	nodes []*provider.Fetcher

	mu      sync.Mutex
	records map[string]*issuer.Issuer
	fetches map[string]int                  // by issuer
	flying  map[string]int                  // by account, and "" for all
	most    map[string]int                  // the most of flying at once
	kids    func(id string) []string        // the keys of a provider
	jwks    string                          // in place of kids, if it is not empty
	random  func() float64                  // of nodes that start; nil for any
	life    time.Duration                   // that providers say
	down    func(id string) error           // why a fetch fails; nil for none
	slow    func(ctx context.Context) error // is called in each fetch
	broken  bool                            // the store
}

func virtual(t *testing.T, nodes int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, records: map[string]*issuer.Issuer{}, fetches: map[string]int{}, flying: map[string]int{}, most: map[string]int{}, life: -1,
			kids: func(string) []string { return []string{"a"} }, down: func(string) error { return nil }, slow: func(context.Context) error { return nil },
		}
		for range nodes {
			w.start()
		}
		f(w)
		for _, n := range w.nodes {
			w.stop(n)
		}
	})
}

// start starts a node.
func (w *world) start() *provider.Fetcher {
	w.t.Helper()
	n, err := provider.New(provider.Config{Service: w, Source: w, Random: w.random})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := n.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.nodes = append(w.nodes, n)
	return n
}

func (w *world) stop(n *provider.Fetcher) {
	w.t.Helper()
	if err := n.Stop(context.Background()); err != nil {
		w.t.Error(err)
	}
}

// sleep lets virtual time pass.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

// issuer adds an issuer that is due now.
func (w *world) issuer(accountID, id string) {
	w.set(func() {
		w.records[id] = &issuer.Issuer{ID: id, AccountID: accountID, Name: id, Settings: issuer.Settings{URL: "https://" + id + ".example"}, Fetched: issuer.Fetched{FetchAt: time.Now()}}
	})
}

// set changes what the world does.
func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// took returns the number of fetches of an issuer since the last call.
func (w *world) took(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.fetches[id]
	w.fetches[id] = 0
	return n
}

// has returns the kids that are stored of an issuer.
func (w *world) has(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return kidsOf(w.records[id])
}

func kidsOf(i *issuer.Issuer) string {
	kids := make([]string, len(i.Seen))
	for n := range i.Seen {
		kids[n] = i.Seen[n].ID
	}
	return strings.Join(kids, " ")
}

// ClaimFetches implements provider.Service, as control.Service does.
func (w *world) ClaimFetches(_ context.Context, perAccount, limit int, choose func(accountID, issuerID string) bool) (claimed []control.IssuerToFetch, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken {
		return nil, errors.New("broken")
	}
	type row struct {
		i    *issuer.Issuer
		turn int
	}
	var due []row
	turns := map[string]int{}
	for _, i := range slices.SortedFunc(maps.Values(w.records), func(a, b *issuer.Issuer) int { return cmp.Or(a.FetchAt.Compare(b.FetchAt), cmp.Compare(a.ID, b.ID)) }) {
		if !i.FetchAt.IsZero() && !i.FetchAt.After(time.Now()) && turns[i.AccountID] < perAccount {
			due = append(due, row{i, turns[i.AccountID]})
			turns[i.AccountID]++
		}
	}
	slices.SortStableFunc(due, func(a, b row) int { return cmp.Compare(a.turn, b.turn) })
	for _, r := range due[:min(limit, len(due))] {
		if choose(r.i.AccountID, r.i.ID) {
			r.i.FetchAt = time.Now().Add(issuer.FetchAgain)
			claimed = append(claimed, control.IssuerToFetch{Issuer: *r.i})
		}
	}
	return claimed, nil
}

// IssuerToFetch implements provider.Service.
func (w *world) IssuerToFetch(_ context.Context, _, issuerID string) (*control.IssuerToFetch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.records[issuerID]
	switch {
	case w.broken:
		return nil, errors.New("broken")
	case i == nil:
		return nil, fault.Missing("issuer")
	}
	return &control.IssuerToFetch{Issuer: *i}, nil
}

// RecordFetch implements provider.Service.
func (w *world) RecordFetch(_ context.Context, f control.KeyFetch) (recorded control.RecordedFetch, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.records[f.IssuerID]
	if w.broken {
		return recorded, errors.New("broken")
	}
	before := *i
	i.FetchAt, i.LastError = time.Now().Add(f.Next), f.Problem
	if f.Keys != nil {
		i.See(f.Keys, time.Now())
		document, err := f.Keys.Document()
		if err != nil {
			return recorded, err
		}
		i.Document = string(document)
	}
	return control.RecordedFetch{Problem: i.LastError, Turned: i.Unreachable() != before.Unreachable(), Changed: kidsOf(i) != kidsOf(&before)}, nil
}

// UnreachableIssuers implements provider.Service.
func (w *world) UnreachableIssuers(context.Context) (n int, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.records {
		if i.Unreachable() {
			n++
		}
	}
	return n, nil
}

// Keys implements provider.Source.
func (w *world) Keys(ctx context.Context, s issuer.Source, _ bool) (*provider.Keys, error) {
	id := strings.TrimSuffix(strings.TrimPrefix(s.Issuer, "https://"), ".example")
	w.mu.Lock()
	account := w.records[id].AccountID
	w.fetches[id]++
	for _, of := range []string{"", account} {
		w.flying[of]++
		w.most[of] = max(w.most[of], w.flying[of])
	}
	slow, down, life, jwks := w.slow, w.down(id), w.life, cmp.Or(w.jwks, jwksOf(w.kids(id)...))
	w.mu.Unlock()
	err := slow(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range []string{"", account} {
		w.flying[of]--
	}
	if err := errors.Join(err, down); err != nil {
		return nil, &provider.Error{Message: err.Error()}
	}
	set, err := jwk.ParseSet([]byte(jwks))
	return &provider.Keys{Set: set, Life: life}, err
}

// takes lets each fetch take a time.
func (w *world) takes(d time.Duration) {
	w.set(func() {
		w.slow = func(ctx context.Context) error {
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// Guarantee: keys are fetched at once, and then every 5 minutes ± 20 % by one of the nodes, or as the provider says between
// a minute and a day.
func TestKeysAreFetchedInTime(t *testing.T) {
	virtual(t, 3, func(w *world) {
		w.issuer("acme", "i")
		w.nodes[1].Wake()
		w.sleep(time.Millisecond)
		if n := w.took("i"); n != 1 || w.has("i") != "a" {
			t.Fatalf("got %d fetches and the keys %q, want one at once", n, w.has("i"))
		}
		w.sleep(4*time.Minute - 2*time.Millisecond)
		if n := w.took("i"); n != 0 {
			t.Errorf("got %d fetches before 4 minutes", n)
		}
		w.sleep(2*time.Minute + 6*time.Second)
		if n := w.took("i"); n != 1 {
			t.Errorf("got %d fetches within 6 minutes, want 1", n)
		}
		w.sleep(10 * time.Hour)
		if n := w.took("i"); n < 95 || n > 140 {
			t.Errorf("got %d fetches in 10 hours, want about 120", n)
		}
		for says, want := range map[time.Duration]int{0: 600, time.Hour: 10, 100 * 24 * time.Hour: 1} {
			w.set(func() { w.life, w.records["i"].FetchAt = says, time.Now() })
			w.sleep(10*time.Hour - time.Second)
			if n := w.took("i"); n > want || n < want*9/10 {
				t.Errorf("the provider says %s: got %d fetches in 10 hours, want %d", says, n, want)
			}
		}
	})
}

// Guarantee: a provider that is down for 24 hours, and a restart meanwhile, leave the last good keys, and it is tried every
// minute. Nodes say that they are degraded until it is back.
func TestProviderIsDown(t *testing.T) {
	virtual(t, 2, func(w *world) {
		w.issuer("acme", "i")
		w.sleep(6 * time.Second)
		w.took("i")
		w.set(func() { w.down = func(string) error { return errors.New("down") } })
		w.sleep(12 * time.Hour)
		w.stop(w.nodes[0])
		w.start()
		w.sleep(12 * time.Hour)
		if n := w.took("i"); n < 24*50 || n > 24*75 {
			t.Errorf("got %d fetches in 24 hours, want about one a minute", n)
		}
		if w.has("i") != "a" || w.nodes[1].Trouble() != "issuers_unreachable" || w.nodes[2].Trouble() != "issuers_unreachable" {
			t.Errorf("got the keys %q, and %+v", w.has("i"), w.nodes[2].Stats())
		}
		w.set(func() {
			w.down = func(string) error { return nil }
			w.kids = func(string) []string { return []string{"b"} }
		})
		w.sleep(2 * time.Minute)
		if w.has("i") != "b" || w.nodes[1].Trouble() != "" || w.nodes[2].Trouble() != "" {
			t.Errorf("got the keys %q, and %q", w.has("i"), w.nodes[1].Trouble())
		}
	})
}

// Guarantee: a token that needs newer keys waits for a fetch, which all tokens of that time share. Another one is made at
// most every 30 s on a node, so 10,000 junk tokens a second cause 2 a minute.
func TestTokensRenewKeys(t *testing.T) {
	virtual(t, 1, func(w *world) {
		w.issuer("acme", "i")
		w.sleep(6 * time.Second)
		w.took("i")
		w.takes(time.Second)
		w.set(func() { w.kids = func(string) []string { return []string{"b"} } })
		began := time.Now()
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				w.nodes[0].Renew(w.t.Context(), "acme", "i")
				if w.has("i") != "b" || time.Since(began) != time.Second {
					t.Errorf("after %s: got the keys %q", time.Since(began), w.has("i"))
				}
			})
		}
		group.Wait()
		if n := w.took("i"); n != 1 {
			t.Errorf("got %d fetches, want one for all", n)
		}
		w.takes(0)
		end := time.Now().Add(time.Minute)
		for time.Now().Before(end) {
			w.nodes[0].Renew(w.t.Context(), "acme", "i")
			w.sleep(10 * time.Millisecond)
		}
		if n, by := w.took("i"), w.nodes[0].Stats(); n != 2 || by.Caused != 3 || by.Waiting != 0 {
			t.Errorf("got %d fetches in a minute of junk, and %+v; want 2", n, by)
		}
	})
}

// Guarantee: a request waits at most 2 s for keys, and 1,000 of an account wait at once; others, and requests of unknown
// issuers, do not wait.
func TestWaitsForKeysAreBounded(t *testing.T) {
	virtual(t, 1, func(w *world) {
		w.issuer("acme", "i")
		w.issuer("acme", "j")
		w.sleep(6 * time.Second)
		w.takes(9 * time.Second)
		began := time.Now()
		var waited, not atomic.Int64
		var group sync.WaitGroup
		for n := range 1100 {
			group.Go(func() {
				w.nodes[0].Renew(w.t.Context(), "acme", []string{"i", "j"}[n%2])
				switch time.Since(began) {
				case 0:
					not.Add(1)
				case 2 * time.Second:
					waited.Add(1)
				}
			})
		}
		group.Wait()
		if waited.Load() != 1000 || not.Load() != 100 {
			t.Errorf("%d requests waited 2 s, and %d did not", waited.Load(), not.Load())
		}
		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		began = time.Now()
		w.nodes[0].Renew(ctx, "acme", "i")
		w.nodes[0].Renew(w.t.Context(), "acme", "gone")
		if time.Since(began) != 0 || w.nodes[0].Stats().Waiting != 0 {
			t.Errorf("a request that has hung up, and one of an unknown issuer: waited %s", time.Since(began))
		}
	})
}

// Guarantee: a tenant with many slow providers has 4 fetches at once, and delays the keys of others by no more than a fetch
// lasts. All of its own are fetched in turn.
func TestTenantsTakeTurns(t *testing.T) {
	virtual(t, 1, func(w *world) {
		for tenant := range 20 {
			for n := range 40 {
				w.issuer(fmt.Sprint("slow", tenant), fmt.Sprintf("s%d-%d", tenant, n))
			}
		}
		w.takes(10 * time.Second)
		w.sleep(30 * time.Second)
		w.issuer("acme", "i")
		w.sleep(20 * time.Second)
		if n := w.took("i"); n != 1 {
			t.Errorf("got %d fetches after 20 s, want 1", n)
		}
		w.sleep(time.Hour)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.most["slow0"] > 4 || w.most[""] > 64 {
			t.Errorf("got %d fetches of a tenant at once, and %d of all", w.most["slow0"], w.most[""])
		}
		for id := range w.records {
			if w.fetches[id] == 0 && id != "i" {
				t.Fatalf("%s was never fetched", id)
			}
		}
	})
}

// Guarantee: a refresh waits for the end of a fetch that began after it, which others share, and returns an error if nothing of
// it could be stored.
func TestRefresh(t *testing.T) {
	virtual(t, 1, func(w *world) {
		w.issuer("acme", "i")
		w.sleep(6 * time.Second)
		w.took("i")
		w.takes(3 * time.Second)
		began := time.Now()
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				err := w.nodes[0].Refresh(w.t.Context(), "acme", "i")
				if took := time.Since(began); err != nil || took != 3*time.Second && took != 6*time.Second {
					t.Errorf("after %s: got %v", took, err)
				}
			})
		}
		group.Wait()
		if n := w.took("i"); n != 2 {
			t.Errorf("got %d fetches, want one, and one that began after it", n)
		}
		if err := w.nodes[0].Refresh(w.t.Context(), "acme", "gone"); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("an issuer that is gone: got %v", err)
		}
		w.set(func() { w.broken = true })
		if err := w.nodes[0].Refresh(w.t.Context(), "acme", "i"); err == nil {
			t.Error("a refresh that is not stored has no error")
		}
		w.set(func() { w.broken = false })
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if err := w.nodes[0].Refresh(ctx, "acme", "i"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that gives up: got %v", err)
		}
		w.stop(w.nodes[0])
		if err := w.nodes[0].Refresh(w.t.Context(), "acme", "i"); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("after a stop: got %v", err)
		}
	})
}

// Guarantee: many refreshes of an account at once run 4 at a time, and those that have not ended after 15 s are refused.
func TestRefreshesTakeTurns(t *testing.T) {
	virtual(t, 1, func(w *world) {
		for n := range 20 {
			w.issuer("acme", fmt.Sprint("i", n))
		}
		w.sleep(10 * time.Second)
		w.takes(9 * time.Second)
		var done, refused atomic.Int64
		var group sync.WaitGroup
		for n := range 20 {
			group.Go(func() {
				switch err := w.nodes[0].Refresh(w.t.Context(), "acme", fmt.Sprint("i", n)); {
				case err == nil:
					done.Add(1)
				case fault.CodeOf(err) == fault.Unavailable:
					refused.Add(1)
				}
			})
		}
		group.Wait()
		if done.Load() != 4 || refused.Load() != 16 {
			t.Errorf("%d are done and %d refused", done.Load(), refused.Load())
		}
	})
}
