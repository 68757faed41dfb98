// Package service owns background work: it starts goroutines, stops them within
// a bound, and knows when all of them have ended.
//
// A service is a type with the methods of [Service]. It keeps its goroutines in
// a [Group], and usually looks like this:
//
//	type Flusher struct {
//		group service.Group
//		…
//	}
//
//	func (f *Flusher) Start(context.Context) error {
//		return f.group.Start(func(ctx context.Context) {
//			service.Every(ctx, f.period, f.flush)
//		})
//	}
//
//	func (f *Flusher) Stop(ctx context.Context) error {
//		if err := f.group.Stop(ctx); err != nil {
//			return fmt.Errorf("stop the flusher: %w", err)
//		}
//		return f.flush(ctx) // the final flush: no goroutine runs any more
//	}
//
// # Stopping
//
// A goroutine has two contexts. The context that it is called with ends when Stop is called: do not
// begin anything new. [Group.Grace] ends only when the bound of Stop has passed: give up what is
// under way. Use the first for waits and for work that may be repeated, and Grace for work that
// must be finished, such as a transaction that has begun.
//
// If Stop returns an error because its bound has passed, the goroutines may
// still run. Calling Stop again waits for them again.
//
// A panic in a goroutine is not recovered: it ends the process, as usual in Go.
package service

import "context"

// Service is background work with a beginning and an end.
//
// Start is called at most once; ctx bounds the start alone, not the work that
// it starts. If it fails, nothing runs.
//
// Stop ends the work. It is idempotent and may be called without Start. When it
// returns nil, no goroutine of the service runs any more. If ctx ends first, it
// returns an error that wraps ctx.Err().
type Service interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}
