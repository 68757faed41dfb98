package gitsync

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/repository"
	"github.com/keygate/keygate/internal/service"
)

// Slots of the two steps (docs/limits.md).
const (
	pollsPerAccount   = 8
	pollsInAll        = 32
	fetchesPerAccount = 4
	fetchesInAll      = 8
)

// Times of syncs.
const (
	pollTime  = 30 * time.Second
	fetchTime = 5 * time.Minute

	// maxBackoff is the longest wait after failures, unless the interval is longer.
	maxBackoff = 15 * time.Minute
	// jitter is the share by which waits are longer or shorter at random.
	jitter = 0.1
	// spread is the time after a start over which the syncs that were due meanwhile are spread.
	spread = time.Minute
	// slotRetry is the wait after a document found no slot in memory.
	slotRetry = 5 * time.Second
	// writeEvery is the time between two writes of the times of polls.
	writeEvery = 5 * time.Second
)

// Service is what the Syncer uses of *control.Service.
type Service interface {
	ConnectedRepositories(ctx context.Context, after string, limit int) ([]gateway.ConnectedRepository, error)
	RepositoryToSync(ctx context.Context, gatewayID string) (*control.RepositoryToSync, error)
	PushCommit(ctx context.Context, p control.Commit) (*control.PushResult, error)
	RecordSync(ctx context.Context, gatewayID string, version int64, change func(r *gateway.ConnectedRepository) *event.SyncFailed) error
	RecordPolls(ctx context.Context, polls []control.RepositoryTimes) error
}

// Client reads repositories; see repository.Client.
type Client interface {
	Head(ctx context.Context, s repository.Source) (commit, hostKey string, err error)
	Read(ctx context.Context, s repository.Source, commit string) (*repository.File, error)
}

// Config configures a Syncer. Service and Client are required.
type Config struct {
	Service Service
	Client  Client
	// Report sets the status of a commit, in a bounded time: see repository.Client.SetStatus. Nil
	// means that no status is reported.
	Report func(ctx context.Context, s repository.Status) error
	// Document waits for a slot in memory for a document of an account. The caller must call
	// release with its size in bytes. Nil means that there is always a slot.
	Document func(ctx context.Context, accountID string) (release func(bytes int), err error)
	// AllowFile is the directory in which file:// repositories of the account default may be; "" if
	// there is none.
	AllowFile string
	Now       func() time.Time // wall clock; nil means time.Now
	Random    func() float64   // in [0, 1); nil means math/rand/v2
	Log       *slog.Logger     // nil discards
}

// Syncer syncs gateways with their repositories. It is a service, and safe for concurrent use.
type Syncer struct {
	cfg   Config
	group service.Group
	kick  service.Signal // the first of due has changed

	mu      sync.Mutex
	entries map[string]*entry // by gateway
	due     schedule
	polls   *stage
	fetches *stage
	times   map[string]control.RepositoryTimes // to be written, by gateway
	stats   Stats
	stopped bool
}

// Stats counts what a Syncer did since its start.
type Stats struct {
	Connected int // repositories
	InFlight  int // syncs that hold a slot
	Waiting   int // syncs that wait for one
	Polls     int64
	Fetches   int64
	Pushed    int64 // commits
	Refused   int64 // commits that could not be pushed
	Failed    int64 // syncs that did not reach their server
}

// New returns a Syncer, which does nothing until Start.
func New(cfg Config) (*Syncer, error) {
	if cfg.Service == nil || cfg.Client == nil {
		return nil, errors.New("gitsync: Config.Service and Config.Client are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	slow := map[string]time.Time{}
	return &Syncer{
		cfg: cfg, kick: service.NewSignal(), entries: map[string]*entry{}, times: map[string]control.RepositoryTimes{},
		polls: newStage(pollsPerAccount, pollsInAll, slow), fetches: newStage(fetchesPerAccount, fetchesInAll, slow),
	}, nil
}

// Start reads the repositories and begins to sync them.
func (s *Syncer) Start(ctx context.Context) error {
	const page = 500
	for after := ""; ; {
		list, err := s.cfg.Service.ConnectedRepositories(ctx, after, page)
		if err != nil {
			return fmt.Errorf("read the repositories of gateways: %w", err)
		}
		for i := range list {
			s.enter(&list[i])
			after = list[i].GatewayID
		}
		if len(list) < page {
			break
		}
	}
	if err := s.group.Start(s.watch, s.writeTimes); err != nil {
		return fmt.Errorf("start the sync of repositories: %w", err)
	}
	return nil
}

// Stop stops the syncs and waits for their end. A push that has begun is finished unless ctx ends.
func (s *Syncer) Stop(ctx context.Context) error {
	if err := s.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the sync of repositories: %w", err)
	}
	s.mu.Lock()
	s.stopped = true
	for _, e := range s.entries { // nobody syncs what still waits
		free(e.waiters)
		e.waiters = nil
	}
	s.mu.Unlock()
	return s.flush(ctx)
}

// enter schedules the first sync of a repository after a start: at its stored time if that is
// plausible, so that a change of the clock does no harm, else soon, at random.
func (s *Syncer) enter(r *gateway.ConnectedRepository) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &entry{gatewayID: r.GatewayID, accountID: r.AccountID, index: -1, failures: r.Failures}
	s.entries[e.gatewayID] = e
	if r.Paused {
		return
	}
	interval := r.IntervalOf()
	wait := r.NextSyncAt.Sub(s.cfg.Now())
	if wait <= 0 || wait > s.longest(interval, r.Failures) {
		wait = time.Duration(s.cfg.Random() * float64(min(spread, interval)))
	}
	s.schedule(e, wait)
}

// schedule makes e due after a while.
func (s *Syncer) schedule(e *entry, wait time.Duration) {
	e.at = time.Now().Add(wait)
	if e.index < 0 {
		heap.Push(&s.due, e)
	} else {
		heap.Fix(&s.due, e.index)
	}
	if e.index == 0 {
		s.kick.Notify()
	}
}

// unschedule leaves e without a time.
func (s *Syncer) unschedule(e *entry) {
	if e.index >= 0 {
		heap.Remove(&s.due, e.index)
	}
}

// watch begins the syncs that are due.
func (s *Syncer) watch(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		wait := time.Hour
		for s.due.Len() > 0 {
			if wait = time.Until(s.due[0].at); wait > 0 {
				break
			}
			s.enqueue(s.due[0], false)
			wait = time.Hour
		}
		s.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.kick:
		}
	}
}

// enqueue makes e wait for a slot of the first step.
func (s *Syncer) enqueue(e *entry, first bool) {
	s.unschedule(e)
	e.phase = queued
	j := &job{account: e.accountID}
	j.run = func(ctx context.Context) { s.poll(ctx, e, j) }
	s.polls.add(j, first)
	s.dispatch(s.polls)
}

// dispatch begins the jobs of a stage for which there are slots.
func (s *Syncer) dispatch(st *stage) {
	for j := st.next(); j != nil; j = st.next() {
		if !s.group.Go(j.run) { // after Stop
			st.done(j)
			return
		}
	}
}

// ask makes a sync of a gateway begin soon, of at least the given depth.
func (s *Syncer) ask(accountID, gatewayID string, d depth, waiter chan struct{}) *entry {
	e := s.entries[gatewayID]
	if e == nil {
		e = &entry{gatewayID: gatewayID, accountID: accountID, index: -1}
		s.entries[gatewayID] = e
	}
	e.want = max(e.want, d)
	if waiter != nil {
		e.waiters = append(e.waiters, waiter)
	}
	switch e.phase {
	case idle:
		s.enqueue(e, true)
	case polling, reading:
		e.again = true
	}
	return e
}

// Changed implements control.RepositorySyncer.
func (s *Syncer) Changed(accountID, gatewayID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[gatewayID]
	if e != nil {
		e.failures = 0
		if e.cancel != nil {
			e.cancel()
		}
	}
	s.ask(accountID, gatewayID, retry, nil)
}

// Wake implements control.RepositorySyncer.
func (s *Syncer) Wake(accountID, gatewayID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ask(accountID, gatewayID, retry, nil)
}

// Sync implements control.RepositorySyncer.
func (s *Syncer) Sync(ctx context.Context, accountID, gatewayID string) error {
	ended := make(chan struct{})
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return nil
	}
	s.ask(accountID, gatewayID, apply, ended)
	s.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		if e := s.entries[gatewayID]; e != nil {
			for i, w := range e.waiters {
				if w == ended {
					e.waiters = append(e.waiters[:i:i], e.waiters[i+1:]...)
					break
				}
			}
		}
		return ctx.Err()
	}
}

// Running implements control.RepositorySyncer. A poll by schedule is not shown: it ends in a moment,
// and usually finds nothing.
func (s *Syncer) Running(gatewayID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[gatewayID]
	return e != nil && !e.shown && (e.phase == reading || e.phase != idle && max(e.want, e.depth) > ifNew)
}

// Stats returns the counts.
func (s *Syncer) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.stats
	t.Connected, t.InFlight = len(s.entries), s.polls.taken+s.fetches.taken
	for _, e := range s.entries {
		if e.phase != idle {
			t.Waiting++
		}
	}
	t.Waiting -= t.InFlight
	return t
}

// longest returns the longest wait for the next sync after a number of failures.
func (s *Syncer) longest(interval time.Duration, failures int) time.Duration {
	return time.Duration(float64(backoff(interval, failures)) * (1 + jitter))
}

// backoff returns the wait after a number of failures in a row: the interval, doubled for each
// failure but the first, up to maxBackoff.
func backoff(interval time.Duration, failures int) time.Duration {
	wait := interval
	for range min(failures, 10) - 1 {
		wait *= 2
	}
	return min(wait, max(interval, maxBackoff))
}

// wait returns backoff with jitter.
func (s *Syncer) wait(interval time.Duration, failures int) time.Duration {
	return time.Duration(float64(backoff(interval, failures)) * (1 - jitter + 2*jitter*s.cfg.Random()))
}

// free ends the waits for a sync.
func free(waiters []chan struct{}) {
	for _, w := range waiters {
		close(w)
	}
}
