package service_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// untilStopped is a goroutine that ends as soon as it is asked to.
func untilStopped(ctx context.Context) { <-ctx.Done() }

func stop(t *testing.T, g *service.Group) {
	t.Helper()
	if err := g.Stop(t.Context()); err != nil {
		t.Errorf("Stop returned %v, want nil", err)
	}
}

// Guarantee: a group starts once, and not after it was stopped.
func TestGroupStartsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g service.Group
		runs := 0
		if err := g.Start(func(ctx context.Context) { runs++; <-ctx.Done() }); err != nil {
			t.Fatalf("first Start: %v", err)
		}
		if err := g.Start(untilStopped); !errors.Is(err, service.ErrStarted) {
			t.Errorf("second Start returned %v, want ErrStarted", err)
		}
		stop(t, &g)
		if err := g.Start(untilStopped); !errors.Is(err, service.ErrStopped) {
			t.Errorf("Start after Stop returned %v, want ErrStopped", err)
		}
		if runs != 1 {
			t.Errorf("the goroutine ran %d times, want 1", runs)
		}
	})
}

// Guarantee: Stop returns nil only when every goroutine has ended.
func TestGroupStopWaitsForEveryGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g service.Group
		var ended atomic.Int32
		slow := func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second) //nolint:forbidigo // virtual time
			ended.Add(1)
		}
		if err := g.Start(slow, func(ctx context.Context) { slow(ctx) }); err != nil {
			t.Fatal(err)
		}
		if !g.Go(slow) {
			t.Error("Go before Stop returned false, want true")
		}
		stop(t, &g)
		if n := ended.Load(); n != 3 {
			t.Errorf("%d goroutines had ended when Stop returned, want 3", n)
		}
	})
}

// Guarantee: Stop may be called without Start, several times, and at the same time.
func TestGroupStopIsIdempotent(t *testing.T) {
	t.Run("without Start", func(t *testing.T) {
		var g service.Group
		stop(t, &g)
		stop(t, &g)
		if g.Go(untilStopped) {
			t.Error("Go after Stop returned true, want false")
		}
	})
	t.Run("at the same time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var g, callers service.Group
			g.Go(func(ctx context.Context) { <-ctx.Done(); time.Sleep(time.Second) }) //nolint:forbidigo // virtual time
			for range 8 {
				callers.Go(func(context.Context) { stop(t, &g) })
			}
			stop(t, &callers)
		})
	})
}

// Guarantee: Stop returns its context's error when the bound passes, ends Grace then and not
// before, and a further call waits for goroutines that still run.
func TestGroupStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g service.Group
		begun := time.Now()
		var graceEnded time.Duration
		g.Go(func(ctx context.Context) {
			<-ctx.Done()
			<-g.Grace().Done()
			graceEnded = time.Since(begun)
			time.Sleep(time.Second) //nolint:forbidigo // virtual time: the goroutine takes a while to give up
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := g.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop returned %v, want context.DeadlineExceeded", err)
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("Stop returned after %s, want 3s", took)
		}
		if err := g.Stop(t.Context()); err != nil {
			t.Errorf("second Stop returned %v, want nil", err)
		}
		if took := time.Since(begun); took != 4*time.Second {
			t.Errorf("second Stop returned after %s in all, want 4s", took)
		}
		if graceEnded != 3*time.Second {
			t.Errorf("Grace ended after %s, want 3s", graceEnded)
		}
	})
}

// Guarantee: when the goroutines have ended, Stop returns nil even if its context
// has ended too.
func TestGroupStopWithEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g service.Group
		g.Go(func(context.Context) {})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			if err := g.Stop(ctx); err != nil {
				t.Fatalf("Stop returned %v, want nil", err)
			}
		}
		if g.Grace().Err() == nil {
			t.Error("Grace has not ended after Stop")
		}
	})
}

// Guarantee: a period lies between the end of one call and the start of the next, and
// nothing is called after ctx ends.
func TestEveryWaitsBetweenCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g service.Group
		begun := time.Now()
		var calls []time.Duration
		g.Go(func(ctx context.Context) {
			service.Every(ctx, 10*time.Second, func(context.Context) {
				calls = append(calls, time.Since(begun))
				time.Sleep(5 * time.Second) //nolint:forbidigo // virtual time
			})
		})
		time.Sleep(42 * time.Second) //nolint:forbidigo // virtual time: within the third call
		stop(t, &g)
		want := []time.Duration{10 * time.Second, 25 * time.Second, 40 * time.Second}
		if len(calls) != len(want) {
			t.Fatalf("called at %v, want %v", calls, want)
		}
		for i := range want {
			if calls[i] != want[i] {
				t.Errorf("call %d came after %s, want %s", i+1, calls[i], want[i])
			}
		}
	})
}
