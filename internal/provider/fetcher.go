package provider

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fairslots"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/service"
)

// The bounds of fetches on a node (docs/limits.md).
const (
	fetchesPerAccount = 4  // at once, of those that are due
	fetchesInAll      = 64 // at once, of those that are due
	askedPerAccount   = 4  // at once, of those that a token or a call causes
	askedInAll        = 64
	maxAsked          = issuer.MaxIssuers // of an account that wait for their turn

	// RenewEvery is the time after a fetch that a token of an issuer has caused in which tokens cause no other one.
	RenewEvery = 30 * time.Second

	renewWait         = 2 * time.Second                  // of a request for a fetch
	refreshWait       = issuer.FetchTime + 5*time.Second // of a call: for a turn as well
	waitersPerAccount = 1_000                            // requests that wait at once
	waitersInAll      = 10_000
)

const (
	lookEvery  = 5 * time.Second // for keys that are due
	countEvery = 30 * time.Second
)

// Service is what the Fetcher uses of *control.Service.
type Service interface {
	ClaimFetches(ctx context.Context, perAccount, limit int, choose func(accountID, issuerID string) bool) ([]control.IssuerToFetch, error)
	IssuerToFetch(ctx context.Context, accountID, issuerID string) (*control.IssuerToFetch, error)
	RecordFetch(ctx context.Context, f control.KeyFetch) (control.RecordedFetch, error)
	UnreachableIssuers(ctx context.Context) (int, error)
}

// Source fetches keys (Client.Keys).
type Source interface {
	Keys(ctx context.Context, s issuer.Source, public bool) (*Keys, error)
}

// Config configures a Fetcher. Service and Source are required.
type Config struct {
	Service Service
	Source  Source
	Random  func() float64 // in [0, 1); nil means math/rand/v2
	Log     *slog.Logger   // nil discards
}

// Fetcher fetches the keys of issuers. It is a service, and safe for concurrent use.
type Fetcher struct {
	cfg   Config
	group service.Group
	kick  service.Signal   // there may be something to claim
	asked *fairslots.Slots // of fetches that a token or a call causes

	mu      sync.Mutex
	flights map[string]*flight   // by issuer
	caused  map[string]time.Time // when a token caused a fetch, by issuer; of the last RenewEvery
	taken   map[string]int       // fetches of those that were due, by account
	inAll   int                  // sum of taken
	short   bool                 // something was left unclaimed, because no slot was free
	waiters map[string]int       // requests that wait, by account
	waiting int                  // sum of waiters
	stats   Stats
}

// flight is a fetch of the keys of an issuer. Who wants the same keys waits for its end.
type flight struct {
	done chan struct{}
	err  error // why nothing is stored of it; set before done is closed
}

// Stats counts what a Fetcher did since its start.
type Stats struct {
	InFlight    int
	Waiting     int // requests that wait for a fetch
	Unreachable int // issuers of the store whose last fetch failed
	Fetches     int64
	Failed      int64 // of Fetches
	Caused      int64 // of Fetches, those that a token has caused
}

// New returns a Fetcher, which does nothing until Start.
func New(cfg Config) (*Fetcher, error) {
	if cfg.Service == nil || cfg.Source == nil {
		return nil, errors.New("provider: Config.Service and Config.Source are required")
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Fetcher{
		cfg: cfg, kick: service.NewSignal(), flights: map[string]*flight{}, caused: map[string]time.Time{}, taken: map[string]int{}, waiters: map[string]int{},
		asked: fairslots.New(fairslots.Config{PerAccount: askedPerAccount, All: askedInAll, Waiting: maxAsked, Wait: issuer.FetchTime}),
	}, nil
}

// Start begins to fetch what is due.
func (f *Fetcher) Start(context.Context) error { return f.group.Start(f.watch, f.count) }

// Stop ends the fetches and waits for their end.
func (f *Fetcher) Stop(ctx context.Context) error { return f.group.Stop(ctx) }

// Wake implements control.IssuerFetcher.
func (f *Fetcher) Wake() { f.kick.Notify() }

// Stats returns the counts.
func (f *Fetcher) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.stats
	t.InFlight, t.Waiting = len(f.flights), f.waiting
	return t
}

// Trouble says in a word that there are issuers whose keys cannot be fetched, for /readyz. It is "" if there are none.
func (f *Fetcher) Trouble() string {
	if f == nil || f.Stats().Unreachable == 0 {
		return ""
	}
	return "issuers_unreachable"
}

// watch fetches what is due.
func (f *Fetcher) watch(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			f.forget()
		case <-f.kick:
		}
		f.fetchDue(ctx)
		timer.Reset(lookEvery)
	}
}

// forget drops what is too old to count.
func (f *Fetcher) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, at := range f.caused {
		if time.Since(at) >= RenewEvery {
			delete(f.caused, id)
		}
	}
}

// count keeps the number of unreachable issuers.
func (f *Fetcher) count(ctx context.Context) {
	f.countUnreachable(ctx)
	service.Every(ctx, countEvery, f.countUnreachable)
}

func (f *Fetcher) countUnreachable(ctx context.Context) {
	n, err := f.cfg.Service.UnreachableIssuers(ctx)
	if err != nil {
		return // the store says so itself
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Unreachable = n
}

// fetchDue begins the fetches that are due and for which there are slots. Each slot goes to the account whose turn it is.
func (f *Fetcher) fetchDue(ctx context.Context) {
	for {
		f.mu.Lock()
		f.short = f.inAll >= fetchesInAll
		full := f.short
		f.mu.Unlock()
		if full {
			return
		}
		chosen := map[string]string{} // accounts, by issuer
		claimed, err := f.cfg.Service.ClaimFetches(ctx, fetchesPerAccount, 2*fetchesInAll, func(accountID, issuerID string) bool {
			if !f.take(accountID, issuerID) {
				return false
			}
			chosen[issuerID] = accountID
			return true
		})
		if err != nil {
			claimed = nil
			if ctx.Err() == nil {
				f.cfg.Log.Warn("could not read which keys of issuers are due; retrying", "error", err)
			}
		}
		for n := range claimed {
			i := &claimed[n]
			f.mu.Lock()
			if f.flights[i.ID] == nil { // otherwise somebody has asked meanwhile
				delete(chosen, i.ID)
				f.begin(i.ID, func(ctx context.Context) error {
					defer f.release(i.AccountID)
					err := f.fetch(ctx, i)
					if err != nil && ctx.Err() == nil {
						f.cfg.Log.Warn("could not store the keys of an issuer; fetching them again in a minute", "issuer", i.ID, "error", err)
					}
					return err
				})
			}
			f.mu.Unlock()
		}
		for _, accountID := range chosen {
			f.release(accountID)
		}
		if len(claimed) == 0 {
			return
		}
	}
}

// take takes a slot for keys that are due.
func (f *Fetcher) take(accountID, issuerID string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.flights[issuerID] != nil:
		return false
	case f.inAll >= fetchesInAll || f.taken[accountID] >= fetchesPerAccount:
		f.short = true
		return false
	}
	f.inAll++
	f.taken[accountID]++
	return true
}

// release gives back a slot.
func (f *Fetcher) release(accountID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inAll--
	if f.taken[accountID]--; f.taken[accountID] == 0 {
		delete(f.taken, accountID)
	}
	if f.short {
		f.kick.Notify()
	}
}

// begin begins a flight of an issuer that has none, and returns it. f.mu is held.
func (f *Fetcher) begin(issuerID string, run func(ctx context.Context) error) *flight {
	fl := &flight{done: make(chan struct{})}
	f.flights[issuerID] = fl
	end := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.flights, issuerID)
		close(fl.done)
	}
	if !f.group.Go(func(ctx context.Context) { defer end(); fl.err = run(ctx) }) { // after Stop
		fl.err = errStopped()
		delete(f.flights, issuerID)
		close(fl.done)
	}
	return fl
}

// ask returns the flight of an issuer, and begins one if none is on its way. f.mu is held.
func (f *Fetcher) ask(accountID, issuerID string) *flight {
	if fl := f.flights[issuerID]; fl != nil {
		return fl
	}
	return f.begin(issuerID, func(ctx context.Context) error {
		release, err := f.asked.Take(ctx, accountID)
		if errors.Is(err, fairslots.ErrNone) {
			return errBusy()
		}
		if err != nil {
			return err
		}
		defer release()
		i, err := f.cfg.Service.IssuerToFetch(ctx, accountID, issuerID)
		if err != nil {
			return err
		}
		return f.fetch(ctx, i)
	})
}

// errStopped is the error of a flight after Stop.
func errStopped() error {
	return fault.New(fault.Unavailable, "the server is being stopped: try again in a moment")
}

// errBusy is the error of a flight that had no turn.
func errBusy() error {
	return fault.New(fault.Unavailable, "other issuers of the account are being fetched, and their providers are slow: try again in a moment")
}

// fetch fetches the keys of an issuer and stores the result. The error is that of the store, or of ctx.
func (f *Fetcher) fetch(ctx context.Context, i *control.IssuerToFetch) error {
	source, _ := i.FetchedFrom()
	result := control.KeyFetch{AccountID: i.AccountID, IssuerID: i.ID, Source: source}
	keys, err := f.cfg.Source.Keys(ctx, source, !i.Operator)
	switch known, ok := errorOf(err); {
	case err == nil:
		result.Keys, result.Next = keys.Set, issuer.FetchedAgainIn(keys.Life, f.cfg.Random())
	case ctx.Err() != nil:
		return errStopped() // it is due again on another node, or after the next start
	case ok:
		result.Problem, result.Next = known.Message, issuer.TriedAgainIn(f.cfg.Random())
	default:
		f.cfg.Log.Error("could not fetch the keys of an issuer", "issuer", i.ID, "error", err)
		result.Problem, result.Next = "the keys could not be fetched: an internal error occurred", issuer.TriedAgainIn(f.cfg.Random())
	}
	recorded, failed := f.cfg.Service.RecordFetch(ctx, result)
	f.mu.Lock()
	f.stats.Fetches++
	if err != nil || recorded.Problem != "" {
		f.stats.Failed++
	}
	f.mu.Unlock()
	switch {
	case recorded.Turned && recorded.Problem != "":
		f.cfg.Log.Warn("the keys of an issuer cannot be fetched; those that were fetched last stay", "issuer", i.ID, "problem", recorded.Problem, "error", errors.Unwrap(err))
	case recorded.Turned:
		f.cfg.Log.Info("the keys of an issuer can be fetched again", "issuer", i.ID)
	case recorded.Changed:
		f.cfg.Log.Info("an issuer has other keys", "issuer", i.ID, "keys", len(result.Keys.Keys()))
	}
	if recorded.Turned {
		f.countUnreachable(ctx)
	}
	return failed
}

// Refresh implements control.IssuerFetcher. A flight that is on its way may have asked the provider already, so another one
// follows it, which all refreshes that wait share.
func (f *Fetcher) Refresh(ctx context.Context, accountID, issuerID string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, refreshWait, errBusy())
	defer cancel()
	f.mu.Lock()
	if running := f.flights[issuerID]; running != nil {
		f.mu.Unlock()
		if err := running.wait(ctx); err != nil {
			return err
		}
		f.mu.Lock()
	}
	next := f.ask(accountID, issuerID)
	f.mu.Unlock()
	if err := next.wait(ctx); err != nil {
		return err
	}
	return next.err
}

// wait waits for the end of a flight. The error is the cause of the end of ctx.
func (fl *flight) wait(ctx context.Context) error {
	select {
	case <-fl.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Renew implements issuer.Renewer.
func (f *Fetcher) Renew(ctx context.Context, accountID, issuerID string) {
	f.mu.Lock()
	fl := f.flights[issuerID]
	if f.waiters[accountID] >= waitersPerAccount || f.waiting >= waitersInAll {
		f.mu.Unlock()
		return
	}
	if fl == nil {
		if last, found := f.caused[issuerID]; found && time.Since(last) < RenewEvery {
			f.mu.Unlock()
			return
		}
		f.caused[issuerID] = time.Now()
		f.stats.Caused++
		fl = f.ask(accountID, issuerID)
	}
	f.waiters[accountID]++
	f.waiting++
	f.mu.Unlock()
	defer f.left(accountID)
	timer := time.NewTimer(renewWait)
	defer timer.Stop()
	select {
	case <-fl.done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// left counts a request that waits no more.
func (f *Fetcher) left(accountID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting--
	if f.waiters[accountID]--; f.waiters[accountID] == 0 {
		delete(f.waiters, accountID)
	}
}

var (
	_ control.IssuerFetcher = (*Fetcher)(nil)
	_ issuer.Renewer        = (*Fetcher)(nil)
)
