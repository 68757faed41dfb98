package gitsync_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/gitsync"
	"github.com/keygate/keygate/internal/repository"
)

// world is a Syncer in virtual time, between records and servers in memory. Package control's tests
// and e2e use real servers; here only time matters.
type world struct {
	t       *testing.T
	cfg     gitsync.Config
	syncer  *gitsync.Syncer
	started time.Time

	mu      sync.Mutex
	records map[string]*record
	heads   map[string]string                                 // commit of each gateway's repository
	head    func(ctx context.Context, gatewayID string) error // called in each poll, if it is not nil
	read    func(ctx context.Context, gatewayID string) error // in each fetch
	push    func(p control.Commit) error                      // in each push
	log     []string                                          // what happened, with the seconds since the start
	running map[string]int                                    // calls of the client, by gateway, account and step
	most    map[string]int                                    // the most of running at once
	events  []event.SyncFailed
	polls   int // written in batches
	batch   int // the most polls written at once
}

type record struct {
	control.RepositoryToSync
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, started: time.Now(), records: map[string]*record{}, heads: map[string]string{}, running: map[string]int{}, most: map[string]int{}}
	w.cfg = gitsync.Config{Service: w, Client: w, Random: func() float64 { return 0.5 }}
	return w
}

// virtual runs f in virtual time.
func virtual(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f(w)
		if w.syncer != nil {
			w.stop()
		}
	})
}

func (w *world) start() {
	w.t.Helper()
	var err error
	if w.syncer, err = gitsync.New(w.cfg); err != nil {
		w.t.Fatal(err)
	}
	if err := w.syncer.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) stop() {
	w.t.Helper()
	if err := w.syncer.Stop(context.Background()); err != nil {
		w.t.Error(err)
	}
}

// sleep lets virtual time pass.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

// connect adds a repository of an account, whose branch is at commit c1.
func (w *world) connect(accountID, gatewayID string) *record {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &record{control.RepositoryToSync{Active: true}}
	r.GatewayID, r.AccountID, r.Interval, r.Path, r.Version, r.Kind = gatewayID, accountID, "60s", "openapi.yaml", 1, gateway.SpecDocument
	r.URL = "https://git.example/" + accountID + "/" + gatewayID
	w.records[gatewayID], w.heads[gatewayID] = r, "c1"
	return r
}

// settled is connect for a repository that was synced before the start.
func (w *world) settled(accountID, gatewayID string) *record {
	r := w.connect(accountID, gatewayID)
	r.LastCommit, r.LastSyncedAt, r.LastAttemptAt = "c1", w.started, w.started
	return r
}

// set changes what the servers do.
func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) commit(gatewayID, commit string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heads[gatewayID] = commit
}

// change changes the record as a management call does.
func (w *world) change(gatewayID string, f func(r *record)) {
	w.set(func() {
		if f == nil {
			delete(w.records, gatewayID)
			return
		}
		f(w.records[gatewayID])
		w.records[gatewayID].Version++
	})
}

func (w *world) record(gatewayID string) record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *w.records[gatewayID]
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%d ", int(time.Since(w.started).Seconds()))+fmt.Sprintf(format, args...))
}

// took returns what happened since the last call.
func (w *world) took() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.log = nil }()
	return strings.Join(w.log, ", ")
}

// wantTook compares what happened since the last call.
func (w *world) wantTook(want string) {
	w.t.Helper()
	if got := w.took(); got != want {
		w.t.Errorf("after %s got\n%s\nwant\n%s", time.Since(w.started), got, want)
	}
}

// enter counts a call of the client until leave is called.
func (w *world) enter(step string, s repository.Source) (gatewayID string, leave func()) {
	parts := strings.Split(s.URL, "/")
	accountID, gatewayID := parts[3], parts[4]
	names := []string{gatewayID, step + " of " + accountID, step}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		w.running[name]++
		w.most[name] = max(w.most[name], w.running[name])
	}
	return gatewayID, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, name := range names {
			w.running[name]--
		}
	}
}

func (w *world) Head(ctx context.Context, s repository.Source) (commit, hostKey string, err error) {
	gatewayID, leave := w.enter("polls", s)
	defer leave()
	w.mu.Lock()
	w.note("poll %s", gatewayID)
	f := w.head
	w.mu.Unlock()
	if f != nil {
		if err := f(ctx, gatewayID); err != nil {
			return "", "", err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heads[gatewayID], "", nil
}

func (w *world) Read(ctx context.Context, s repository.Source, commit string) (*repository.File, error) {
	gatewayID, leave := w.enter("fetches", s)
	defer leave()
	w.mu.Lock()
	w.note("fetch %s %s", gatewayID, commit)
	f := w.read
	w.mu.Unlock()
	if f != nil {
		if err := f(ctx, gatewayID); err != nil {
			return nil, err
		}
	}
	return &repository.File{Commit: commit, Author: "Ada", Content: []byte(commit)}, nil
}

func (w *world) ConnectedRepositories(_ context.Context, after string, limit int) ([]gateway.ConnectedRepository, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []gateway.ConnectedRepository
	for id, r := range w.records {
		if id > after {
			list = append(list, r.ConnectedRepository)
		}
	}
	slices.SortFunc(list, func(a, b gateway.ConnectedRepository) int { return strings.Compare(a.GatewayID, b.GatewayID) })
	return list[:min(len(list), limit)], nil
}

func (w *world) RepositoryToSync(_ context.Context, gatewayID string) (*control.RepositoryToSync, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.records[gatewayID]
	if r == nil {
		return nil, fault.Missing("repository")
	}
	found := r.RepositoryToSync
	return &found, nil
}

func (w *world) current(gatewayID string, version int64) (*record, error) {
	r := w.records[gatewayID]
	if r == nil || r.Version != version || r.Paused {
		return nil, control.ErrSuperseded
	}
	return r, nil
}

func (w *world) PushCommit(_ context.Context, p control.Commit) (*control.PushResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.push != nil {
		if err := w.push(p); err != nil {
			return nil, err
		}
	}
	r, err := w.current(p.GatewayID, p.Version)
	if err != nil {
		return nil, err
	}
	w.note("push %s %s", p.GatewayID, p.Hash)
	r.LastCommit, r.FailedCommit, r.LastError, r.FailureKind, r.Failures, r.LastSyncedAt = p.Hash, "", "", "", 0, time.Now()
	w.mu.Unlock()
	p.Synced(&r.ConnectedRepository)
	w.mu.Lock()
	return &control.PushResult{}, nil
}

func (w *world) RecordSync(_ context.Context, gatewayID string, version int64, change func(*gateway.ConnectedRepository) *event.SyncFailed) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, err := w.current(gatewayID, version)
	if err != nil {
		return err
	}
	if failed := change(&r.ConnectedRepository); failed != nil {
		w.events = append(w.events, *failed)
	}
	return nil
}

func (w *world) RecordPolls(_ context.Context, polls []control.RepositoryTimes) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polls, w.batch = w.polls+len(polls), max(w.batch, len(polls))
	for _, t := range polls {
		if r := w.records[t.GatewayID]; r != nil && r.Version == t.Version {
			r.LastAttemptAt, r.NextSyncAt = t.Attempt, t.Next
			if !t.Synced.IsZero() {
				r.LastSyncedAt = t.Synced
			}
		}
	}
	return nil
}
