package sender

import (
	"context"
	"log/slog"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// writeBatch is how many results are written, or leases are ended, in one transaction. It must not delay the
// other writers of the store for long.
const writeBatch = 128

// writer writes results to the store and reports to the dispatcher that their leases have ended.
type writer struct {
	queue      Queue
	results    *results
	dispatcher *dispatcher
	stats      *counters
	now        func() time.Time
	log        *slog.Logger
}

// run writes results until the results queue is closed and empty. When ctx ends, each
// write is tried only once more.
func (w *writer) run(ctx context.Context) {
	for range w.results.ready {
		w.writeAll(ctx)
	}
	w.writeAll(ctx)
}

// writeAll writes everything that the results queue holds.
func (w *writer) writeAll(ctx context.Context) {
	for {
		batch, released := w.results.take(writeBatch)
		if len(batch) == 0 && len(released) == 0 {
			return
		}
		if len(batch) > 0 {
			w.finish(ctx, batch)
		}
		if len(released) > 0 {
			w.release(ctx, released)
		}
	}
}

// finish writes the results of attempts.
func (w *writer) finish(ctx context.Context, batch []finished) {
	list, tasks := make([]Result, len(batch)), make([]*task, len(batch))
	for i, f := range batch {
		list[i], tasks[i] = f.result, f.task
	}
	w.write(ctx, tasks, false, "results of webhook deliveries", func() error {
		late, err := w.queue.FinishDeliveries(ctx, list)
		w.stats.late.Add(int64(late))
		return err
	})
	w.dispatcher.recorded(batch)
}

// release ends the leases of tasks that were handed back.
func (w *writer) release(ctx context.Context, tasks []*task) {
	leases := make([]Lease, len(tasks))
	for i, t := range tasks {
		leases[i] = t.Lease
	}
	w.write(ctx, tasks, true, "released webhook deliveries", func() error {
		return w.queue.ReleaseDeliveries(ctx, leases)
	})
}

// write calls f until it succeeds, and then frees the leases of the tasks, which were handed back or have results, in
// the dispatcher. It gives up when ctx has ended or the last lease has expired, since another sender may have the
// deliveries by then.
func (w *writer) write(ctx context.Context, tasks []*task, handedBack bool, what string, f func() error) {
	defer w.dispatcher.unhold(tasks, handedBack)
	var expires time.Time
	for _, t := range tasks {
		if t.until.After(expires) {
			expires = t.until
		}
	}
	for {
		err := f()
		if err == nil {
			return
		}
		w.stats.storeErrors.Add(1)
		if ctx.Err() != nil || w.now().After(expires) {
			w.stats.unwritten.Add(int64(len(tasks)))
			w.log.ErrorContext(ctx, "gave up writing to the store; these webhook deliveries will be sent again", "what", what, "count", len(tasks), "error", err)
			return
		}
		w.log.WarnContext(ctx, "cannot write to the store; trying again", "what", what, "count", len(tasks), "error", err)
		service.Wait(ctx, retryStore)
	}
}
