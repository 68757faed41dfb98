package gitsync_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fairslots"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/repository"
)

func away() error {
	return &repository.Error{Kind: repository.Unreachable, Message: "git.example could not be reached"}
}

// Guarantee: a repository is polled at its interval, a new commit is fetched and pushed once, and
// polls that find nothing cost no fetch and no transaction of their own.
func TestFollowsEachCommit(t *testing.T) {
	virtual(t, func(w *world) {
		w.connect("a", "g1")
		w.start()
		w.sleep(31 * time.Second)
		w.wantTook("30 poll g1, 30 fetch g1 c1, 30 push g1 c1")
		w.sleep(2 * time.Minute)
		w.wantTook("90 poll g1, 150 poll g1")
		w.commit("g1", "c2")
		w.sleep(time.Minute)
		w.wantTook("210 poll g1, 210 fetch g1 c2, 210 push g1 c2")
		w.sleep(time.Hour)
		w.took()
		r := w.record("g1")
		if r.LastCommit != "c2" || time.Since(r.LastSyncedAt) > 70*time.Second || time.Since(r.NextSyncAt) > 10*time.Second || w.polls < 50 {
			t.Errorf("got %+v and %d times in batches", r.RepositorySync, w.polls)
		}
	})
}

// Guarantee: contract 5, a commit that cannot be pushed changes nothing, raises one event, and is
// tried again only on request, or if there is another commit.
func TestBadCommits(t *testing.T) {
	for name, set := range map[string]func(w *world, bad bool){
		"a bad document": func(w *world, bad bool) {
			w.push = func(control.Commit) error {
				if bad {
					return fault.Invalid("paths./a", "is not a valid path (line 3, column 5)")
				}
				return nil
			}
		},
		"no such file": func(w *world, bad bool) {
			w.read = func(context.Context, string) error {
				if bad {
					return &repository.Error{Kind: repository.NoFile, Message: "openapi.yaml: there is no such file"}
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(w *world) {
				w.settled("a", "g1")
				w.start()
				w.set(func() { set(w, true) })
				w.commit("g1", "bad")
				w.sleep(10 * time.Minute)
				if log := w.took(); strings.Count(log, "fetch") != 1 || strings.Count(log, "poll") < 9 || strings.Contains(log, "push") {
					t.Errorf("got %s, want polls, one fetch and no push", log)
				}
				r := w.record("g1")
				if r.LastCommit != "c1" || r.FailedCommit != "bad" || !strings.HasPrefix(r.LastError, "openapi.yaml: ") || len(w.events) != 1 || *w.events[0].Commit != "bad" {
					t.Errorf("got %+v and events %+v", r.RepositorySync, w.events)
				}
				w.syncer.Wake("a", "g1")
				w.sleep(time.Second)
				if log := w.took(); !strings.Contains(log, "fetch g1 bad") || len(w.events) != 1 {
					t.Errorf("asked for: got %s and %d events, want another fetch and no other event", log, len(w.events))
				}
				w.commit("g1", "c1") // as before
				w.sleep(time.Minute)
				if r := w.record("g1"); r.LastError != "" || r.FailedCommit != "" || strings.Contains(w.took(), "fetch") {
					t.Errorf("back at the good commit: got %+v", r.RepositorySync)
				}
				w.commit("g1", "bad")
				w.sleep(2 * time.Minute)
				if w.record("g1").FailedCommit != "bad" || len(w.events) != 1 {
					t.Errorf("the same bad commit again: got %d events, want one", len(w.events))
				}
				w.set(func() { set(w, false) })
				w.commit("g1", "c3")
				w.sleep(time.Minute)
				if r := w.record("g1"); r.LastCommit != "c3" || r.LastError != "" {
					t.Errorf("after the correction: got %+v", r.RepositorySync)
				}
			})
		})
	}
}

// Guarantee: a server that cannot be reached is polled less and less often, down to every 15
// minutes, and consecutive failures of one kind raise one event. When it is back, polls are as
// before.
func TestBackoff(t *testing.T) {
	virtual(t, func(w *world) {
		w.settled("a", "g1")
		w.head = func(context.Context, string) error { return away() }
		w.start()
		w.sleep(2 * time.Hour)
		var at, last int
		var waits []string
		for entry := range strings.SplitSeq(w.took(), ", ") {
			if _, err := fmt.Sscanf(entry, "%d", &at); err != nil {
				t.Fatal(err)
			}
			waits, last = append(waits, fmt.Sprint(at-last)), at
		}
		if got := strings.Join(waits, " "); got != "30 60 120 240 480 900 900 900 900 900 900" {
			t.Errorf("got waits of %s seconds", got)
		}
		r := w.record("g1")
		if len(w.events) != 1 || w.events[0].Commit != nil || r.LastError != "git.example could not be reached" || r.Failures != 11 || r.LastCommit != "c1" {
			t.Errorf("got %+v and events %+v", r.RepositorySync, w.events)
		}
		w.set(func() { w.head = nil })
		w.sleep(20 * time.Minute)
		r = w.record("g1")
		if log := w.took(); r.LastError != "" || r.Failures != 0 || strings.Contains(log, "fetch") || strings.Count(log, "poll") < 5 {
			t.Errorf("back: got %s and %+v", log, r.RepositorySync)
		}
		w.set(func() { w.head = func(context.Context, string) error { return errors.New("broken") } })
		w.sleep(time.Hour)
		if len(w.events) != 2 || strings.Contains(w.events[1].Message, "broken") {
			t.Errorf("the next failure: got events %+v, want a second one without the internal error", w.events)
		}
	})
}

// Guarantee: however many repositories an account has, the times of their polls are stored in short transactions, and
// none is left out.
func TestTimesOfManyPollsAreStoredInPieces(t *testing.T) {
	const repositories = 6000 // 500 polls in each period of writing
	virtual(t, func(w *world) {
		for n := range repositories {
			w.settled("a", fmt.Sprintf("g%04d", n))
			w.commit(fmt.Sprintf("g%04d", n), "c1")
		}
		w.start()
		w.sleep(70 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.polls < repositories || w.batch > 200 {
			t.Errorf("%d times were stored, at most %d at once; want at least %d, at most 200 at once", w.polls, w.batch, repositories)
		}
	})
}

// Guarantee: at no time are there more than 8 polls and 4 fetches of an account, 32 and 8 of all
// accounts, or more than one step of a gateway. No account waits for another that hangs, and
// accounts that hang have no more than half of the slots.
func TestBoundsAndFairness(t *testing.T) {
	virtual(t, func(w *world) {
		for a := range 12 {
			for g := range 30 {
				w.settled(fmt.Sprintf("a%02d", a), fmt.Sprintf("a%02dg%02d", a, g))
				w.commit(fmt.Sprintf("a%02dg%02d", a, g), "c2")
			}
		}
		w.settled("good", "good1")
		hang := func(ctx context.Context, gatewayID string) error {
			if strings.HasPrefix(gatewayID, "a") {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		w.head = func(ctx context.Context, gatewayID string) error {
			if strings.HasPrefix(gatewayID, "a00") || strings.HasPrefix(gatewayID, "a01") || strings.HasPrefix(gatewayID, "a02") {
				return hang(ctx, gatewayID)
			}
			return nil
		}
		w.read = hang
		w.start()
		w.sleep(45 * time.Minute)
		w.took()
		for i := range 5 {
			w.commit("good1", fmt.Sprint("good", i))
			begin := time.Now()
			w.syncer.Wake("good", "good1")
			for w.record("good1").LastCommit != fmt.Sprint("good", i) {
				w.sleep(time.Second)
				if time.Since(begin) > 10*time.Second {
					t.Errorf("commit %d waits for other accounts", i)
					return
				}
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for name, bound := range map[string]int{"polls": 32, "fetches": 8, "polls of a00": 8, "fetches of a05": 4} {
			if w.most[name] > bound || w.most[name] == 0 {
				t.Errorf("%d %s at once, want 1 to %d", w.most[name], name, bound)
			}
		}
		for name, n := range w.most {
			if strings.Contains(name, "g") && !strings.Contains(name, " ") && len(name) == 6 && n > 1 {
				t.Errorf("%s was in %d steps at once", name, n)
			}
		}
	})
}

// Guarantee: whatever is requested and committed, in any order, the gateway has the newest commit at
// the end, and no gateway is in two steps at once.
func TestAsksInAnyOrder(t *testing.T) {
	for seed := range uint64(20) {
		virtual(t, func(w *world) {
			random := rand.New(rand.NewPCG(seed, 1))
			for g := range 5 {
				w.connect("a", fmt.Sprint("g", g))
			}
			slow := func(ctx context.Context, _ string) error {
				w.mu.Lock()
				d := time.Duration(random.IntN(90)) * time.Second
				w.mu.Unlock()
				select {
				case <-time.After(d):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			w.head, w.read = slow, slow
			w.start()
			for i := range 60 {
				g := fmt.Sprint("g", i%5)
				switch w.mu.Lock(); random.IntN(5) {
				case 0:
					w.mu.Unlock()
					w.syncer.Wake("a", g)
				case 1:
					w.mu.Unlock()
					w.change(g, func(r *record) { r.Interval = "30s" })
					w.syncer.Changed("a", g)
				case 2:
					w.mu.Unlock()
					ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
					_ = w.syncer.Sync(ctx, "a", g)
					cancel()
				default:
					w.mu.Unlock()
					w.commit(g, fmt.Sprint("c", i))
				}
				w.mu.Lock()
				d := time.Duration(random.IntN(40)) * time.Second
				w.mu.Unlock()
				w.sleep(d)
			}
			w.set(func() { w.head, w.read = nil, nil })
			w.sleep(time.Hour)
			for g := range 5 {
				id := fmt.Sprint("g", g)
				if r := w.record(id); r.LastCommit != w.heads[id] {
					t.Errorf("seed %d: %s has %s, want %s: %+v", seed, id, r.LastCommit, w.heads[id], r.RepositorySync)
				}
				if w.most[id] > 1 {
					t.Errorf("seed %d: %s was in %d steps at once", seed, id, w.most[id])
				}
			}
		})
	}
}

// Guarantee: Sync returns when a sync that began after the call has ended, and pushes the last
// pushed commit again; if a sync is running at the call, another one follows it.
func TestSyncWaitsForItsOwn(t *testing.T) {
	virtual(t, func(w *world) {
		w.settled("a", "g1")
		release := make(chan struct{})
		w.head = func(context.Context, string) error { <-release; return nil }
		w.start()
		w.syncer.Wake("a", "g1")
		w.sleep(time.Second)
		done := make(chan error, 1)
		go func() { done <- w.syncer.Sync(w.t.Context(), "a", "g1") }()
		w.sleep(time.Second)
		w.commit("g1", "c2")
		release <- struct{}{} // ends the first
		w.sleep(time.Second)
		select {
		case <-done:
			t.Error("Sync returned with the sync that had begun before")
		default:
		}
		close(release)
		if err := <-done; err != nil || w.record("g1").LastCommit != "c2" {
			t.Errorf("got error %v and %+v", err, w.record("g1").RepositorySync)
		}
		w.took()
		if err := w.syncer.Sync(w.t.Context(), "a", "g1"); err != nil {
			t.Error(err)
		}
		if log := w.took(); !strings.Contains(log, "push g1 c2") {
			t.Errorf("got %s, want the commit pushed again", log)
		}
	})
}

// Guarantee: paused repositories, and repositories of suspended accounts, are not polled. If the
// repository is paused, changed or removed during a sync, the result of the sync is void; what
// waited for it gets the result of the next sync.
func TestChangesDuringASync(t *testing.T) {
	virtual(t, func(w *world) {
		w.settled("a", "paused").Paused = true
		w.settled("b", "suspended").Active = false
		w.connect("c", "g1")
		w.connect("c", "gone")
		reading := make(chan struct{})
		w.read = func(ctx context.Context, id string) error {
			select {
			case <-reading:
			case <-ctx.Done():
				return ctx.Err()
			}
			return nil
		}
		w.start()
		w.sleep(40 * time.Second)
		if log := w.took(); strings.Count(log, "poll") != 2 || strings.Count(log, "fetch") != 2 {
			w.t.Errorf("got %s, want a poll and a fetch of each that is active", log)
		}
		done := make(chan error, 1)
		go func() { done <- w.syncer.Sync(w.t.Context(), "c", "g1") }()
		w.sleep(time.Second)
		w.change("g1", func(r *record) { r.Path = "other.yaml" })
		w.syncer.Changed("c", "g1")
		w.change("gone", nil)
		w.syncer.Changed("c", "gone")
		w.sleep(time.Second)
		close(reading)
		if err := <-done; err != nil || w.record("g1").LastCommit != "c1" {
			t.Errorf("got error %v and %+v", err, w.record("g1").RepositorySync)
		}
		if log := w.took(); strings.Contains(log, "push gone") || strings.Count(log, "push g1") != 1 {
			t.Errorf("got %s, want one push, of the new settings", log)
		}
		w.change("g1", func(r *record) { r.Paused = true }) // by a rollback, which tells nobody
		w.commit("g1", "c2")
		w.sleep(10 * time.Minute)
		if log := w.took(); strings.Contains(log, "fetch") {
			t.Errorf("during the pause got %s", log)
		}
		w.change("g1", func(r *record) { r.Paused = false })
		w.syncer.Wake("c", "g1")
		w.sleep(time.Second)
		if got := w.record("g1").LastCommit; got != "c2" {
			t.Errorf("resumed: got %s, want c2", got)
		}
		if n := w.syncer.Stats().Connected; n != 3 {
			t.Errorf("%d repositories are known, want 3", n)
		}
	})
}

// Guarantee: a start spreads the due syncs over a minute, and keeps plausible times. No step of the
// wall clock makes a repository wait longer than its interval.
func TestStartSpreadsSyncs(t *testing.T) {
	virtual(t, func(w *world) {
		random := rand.New(rand.NewPCG(1, 2))
		w.cfg.Random = random.Float64
		for g := range 1000 {
			r := w.settled(fmt.Sprint("a", g%100), fmt.Sprintf("g%03d", g))
			switch g {
			case 1:
				r.NextSyncAt = w.started.Add(40 * time.Second)
			case 2:
				r.NextSyncAt = w.started.Add(365 * 24 * time.Hour) // the clock was ahead
			}
		}
		w.start()
		w.sleep(61 * time.Second)
		second := map[string]int{}
		seen := map[string]bool{}
		for entry := range strings.SplitSeq(w.took(), ", ") {
			at, rest, _ := strings.Cut(entry, " ")
			second[at]++
			seen[rest] = true
			if rest == "poll g001" && at != "40" {
				t.Errorf("a poll with a time of its own is at %s, want 40", at)
			}
		}
		for at, n := range second {
			if n > 50 {
				t.Errorf("%d polls in second %s", n, at)
			}
		}
		if len(seen) != 1000 {
			t.Errorf("%d of 1,000 repositories were polled in a minute", len(seen))
		}
	})
}

// Guarantee: a document that finds no slot in memory is tried again soon, without an error; results
// that cannot be stored are tried again too; Stop ends running syncs and wakes callers that wait.
func TestLackOfSlotAndStop(t *testing.T) {
	virtual(t, func(w *world) {
		w.connect("a", "g1")
		var full, broken atomic.Bool
		full.Store(true)
		w.cfg.Document = func(context.Context, string) (func(int), error) {
			if full.Load() {
				return nil, fairslots.ErrNone
			}
			return func(int) {}, nil
		}
		w.push = func(control.Commit) error {
			if broken.Load() {
				return fault.New(fault.Unavailable, "the disk is full")
			}
			return nil
		}
		w.start()
		w.sleep(50 * time.Second)
		if log := w.took(); strings.Count(log, "fetch") < 2 || w.record("g1").LastError != "" {
			t.Errorf("got %s and %+v, want several fetches and no error", log, w.record("g1").RepositorySync)
		}
		broken.Store(true)
		full.Store(false)
		w.sleep(10 * time.Second)
		if w.record("g1").LastError != "" || len(w.events) != 0 {
			t.Errorf("a full disk of ours: got %+v", w.record("g1").RepositorySync)
		}
		broken.Store(false)
		w.sleep(5 * time.Minute)
		if w.record("g1").LastCommit != "c1" {
			t.Errorf("got %+v, want c1 pushed", w.record("g1").RepositorySync)
		}
		w.set(func() { w.head = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() } })
		done := make(chan error, 2)
		go func() { done <- w.syncer.Sync(context.Background(), "a", "g1") }()
		w.sleep(time.Second)
		w.stop()
		<-done
		if err := w.syncer.Sync(context.Background(), "a", "g1"); err != nil {
			t.Error(err)
		}
	})
}

// Guarantee: the status of each new commit is reported once, and a failure to report it is a
// warning in the record. Nobody waits for the report.
func TestCommitStatuses(t *testing.T) {
	virtual(t, func(w *world) {
		r := w.settled("a", "g1")
		r.StatusProvider, r.StatusToken = "github", "token"
		var sent []string
		var fail error
		w.cfg.Report = func(_ context.Context, s repository.Status) error {
			sent = append(sent, fmt.Sprintf("%s %s %t %s", s.Provider, s.Commit, s.OK, s.Message))
			if fail != nil {
				<-time.After(10 * time.Second)
			}
			return fail
		}
		w.start()
		w.commit("g1", "c2")
		w.sleep(time.Minute)
		w.set(func() {
			w.push = func(control.Commit) error { return fault.Invalid("", "is wrong (line 1, column 1)") }
		})
		w.commit("g1", "bad")
		w.sleep(5 * time.Minute)
		want := "github c2 true Keygate: nothing to change|github bad false openapi.yaml: is wrong (line 1, column 1)"
		if got := strings.Join(sent, "|"); got != want {
			t.Errorf("got statuses %s, want %s", got, want)
		}
		w.set(func() { w.push = nil })
		fail = &repository.Error{Kind: repository.Unreachable, Message: "api.github.com could not be reached"}
		w.commit("g1", "c3")
		begin := time.Now()
		if err := w.syncer.Sync(w.t.Context(), "a", "g1"); err != nil || time.Since(begin) > time.Second || w.syncer.Running("g1") {
			t.Errorf("Sync took %s and returned %v", time.Since(begin), err)
		}
		w.sleep(time.Minute)
		if got := w.record("g1"); !strings.Contains(got.Warning, "c3") || !strings.Contains(got.Warning, "api.github.com") || got.LastError != "" {
			t.Errorf("got %+v, want a warning", got.RepositorySync)
		}
	})
}
