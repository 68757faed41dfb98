package writer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
)

// stuckStore is a store whose writes do not return until release is closed. Unlike a real one
// it runs on virtual time.
type stuckStore struct {
	Store
	release chan struct{}
	cancels bool // whether a write returns when its context ends
	calls   atomic.Int32
}

func (s *stuckStore) AppendAuditChunks(ctx context.Context, batch accesslog.BatchID, _ []audit.Chunk, _ []*audit.Record) error {
	s.calls.Add(1)
	done := ctx.Done()
	if !s.cancels {
		done = nil
	}
	select {
	case <-s.release:
		return nil
	case <-done:
		return ctx.Err()
	}
}

// emptyKeeper is a Keeper of empty logs.
type emptyKeeper struct{ Keeper }

func (emptyKeeper) AuditWaiting(context.Context) ([]audit.Waiting, error) { return nil, nil }

func (emptyKeeper) TrimAudit(context.Context, time.Time, int64) (*audit.Trimmed, error) {
	return nil, nil
}

func (emptyKeeper) AuditChains(context.Context) ([]audit.Chain, error) { return nil, nil }

// startStuck starts a Writer and waits until it is blocked in a write to s.
func startStuck(t *testing.T, s *stuckStore) *Writer {
	t.Helper()
	s.release = make(chan struct{})
	w, err := New(Config{Store: s, Keeper: emptyKeeper{}, OperatorID: id.New(id.Account)})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := accesslog.Entry{Path: "/"}
	e.Account, e.Start, e.Request, e.Authenticated = id.NewFast(), time.Now().UnixMicro(), id.NewFast(), true
	w.Take([]accesslog.Entry{e})
	<-time.After(2 * DefaultPeriod)
	if s.calls.Load() != 1 {
		t.Fatalf("the store was called %d times before Stop, want 1", s.calls.Load())
	}
	return w
}

// Guarantee: Stop returns within the bound of its context even if a write hangs, and
// a later Stop finishes the work.
func TestStopIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuckStore{}
		w := startStuck(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		release := time.AfterFunc(time.Hour, func() { close(s.release) })
		start := time.Now()
		err := w.Stop(ctx)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Stop returned after %s, want 1s", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop returned %v, want context.DeadlineExceeded", err)
		}
		if release.Stop() {
			close(s.release)
		}
		if err := w.Stop(t.Context()); err != nil {
			t.Errorf("second Stop returned %v, want nil", err)
		}
		if held := w.Held(); held != 0 {
			t.Errorf("%d bytes are not in the store after Stop, want 0", held)
		}
	})
}

// Guarantee: Stop lets a running write finish until its context ends.
func TestStopLetsAWriteFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuckStore{cancels: true}
		w := startStuck(t, s)
		time.AfterFunc(500*time.Millisecond, func() { close(s.release) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			t.Errorf("Stop returned %v, want nil", err)
		}
		if got := s.calls.Load(); got != 1 {
			t.Errorf("the store was called %d times, want once", got)
		}
		if got := w.Held(); got != 0 {
			t.Errorf("%d bytes are not in the store, want 0", got)
		}
	})
}

// Guarantee: a write that is still running when the context of Stop ends is cancelled, and a
// later Stop finishes the work.
func TestStopCancelsALongWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuckStore{cancels: true}
		w := startStuck(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop returned %v, want context.DeadlineExceeded", err)
		}
		close(s.release)
		if err := w.Stop(t.Context()); err != nil {
			t.Errorf("second Stop returned %v, want nil", err)
		}
	})
}
