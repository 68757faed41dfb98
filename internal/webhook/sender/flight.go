package sender

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/webhook"
)

// task is a job in this sender's hands.
type task struct {
	Job
	e     *endpoint
	until time.Time // the end of the lease
}

// finished is a task with what came of it.
type finished struct {
	task   *task
	result Result
}

// dispatch begins what may begin of e. The mutex is held.
func (s *Sender) dispatch(e *endpoint) {
	now := s.cfg.Now()
	for len(e.queue) > 0 && !s.stopping && e.flying < e.window {
		if e.flying >= (maxFlying-s.flying+flyShare-1)/flyShare {
			if !e.starved {
				e.starved = true
				s.starved = append(s.starved, e)
			}
			return
		}
		t := e.next()
		if now.After(t.until.Add(-attemptNeeds)) {
			s.release(t)
			continue
		}
		e.flying++
		s.flying++
		s.sending.Go(func() { s.send(t) })
	}
}

// send makes one attempt.
func (s *Sender) send(t *task) {
	attempt, retryAfter := s.attempt(s.sendCtx, t)
	if s.sendCtx.Err() != nil && !attempt.Succeeded() {
		s.abandon(t) // cut off by our own end, which is no fault of the endpoint
		return
	}
	r := Result{Lease: t.Lease, Attempt: attempt, State: webhook.Delivered}
	if !attempt.Succeeded() {
		ended := attempt.StartedAt.Add(attempt.Duration)
		r.State, r.NextAttemptAt = s.schedule.After(attempt.Number, ended, s.cfg.Random(), retryAfter)
	}
	s.stats.count(&r)
	s.landed(finished{t, r})
}

// landed takes the outcome of an attempt into account and begins others.
func (s *Sender) landed(f finished) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, now := f.task.e, s.cfg.Now()
	if e.probe == f.task {
		e.probe = nil
	}
	switch {
	case f.result.State == webhook.Delivered:
		e.succeeded(now)
	case f.result.Attempt.Gone():
		e.gone = true
		s.takeBack(e) // to be failed, once the store has disabled the endpoint
	case e.failed(now, s.cfg.Backoff):
		s.stats.pauses.Add(1)
		s.postpone(e)
	}
	s.results = append(s.results, f)
	s.freed(e)
}

// Recall tells that an endpoint was changed, disabled or deleted: what is not yet
// on the way to it goes out as the store then has it, or not at all.
func (s *Sender) Recall(webhookID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recall(webhookID)
}

// recall is Recall with the mutex held.
func (s *Sender) recall(webhookID string) {
	s.recalled[webhookID] = struct{}{} // a claim that is being made may bring more
	if e := s.endpoints[webhookID]; e != nil {
		s.takeBack(e)
	}
}

// takeBack hands back what is held of e and not begun, to be claimed anew. The
// mutex is held.
func (s *Sender) takeBack(e *endpoint) {
	if len(e.queue) == 0 {
		return
	}
	s.release(e.queue...)
	e.queue = nil
}

// abandon hands back a task whose attempt was cut off.
func (s *Sender) abandon(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(t)
	s.freed(t.e)
}

// freed gives the place of an attempt to others. The mutex is held.
func (s *Sender) freed(e *endpoint) {
	e.flying--
	s.flying--
	signal(s.done)
	s.dispatch(e)
	waiting := s.starved
	s.starved = nil
	for i, w := range waiting {
		if s.flying >= maxFlying {
			s.starved = append(s.starved, waiting[i:]...)
			break
		}
		w.starved = false
		s.dispatch(w)
	}
	if e.wants() {
		s.Wake()
	}
}

// postpone hands back what a pause postpones. The mutex is held.
func (s *Sender) postpone(e *endpoint) {
	back := e.cut()
	s.stats.postponed.Add(int64(len(back)))
	s.release(back...)
}

// release hands tasks back that are not in flight. The mutex is held.
func (s *Sender) release(tasks ...*task) {
	if len(tasks) == 0 {
		return
	}
	for _, t := range tasks {
		if t.e.probe == t {
			t.e.probe = nil
		}
	}
	s.releases = append(s.releases, tasks...)
	signal(s.done)
}

// finishAll writes results and releases until done is closed and all is written,
// or writing was given up.
func (s *Sender) finishAll(ctx context.Context) {
	for range s.done {
		s.finish(ctx)
	}
	s.finish(ctx)
}

// finishBatch is how many results are written in one transaction, which must not
// hold up the other writers for long.
const finishBatch = 128

// finish writes all that there is to write.
func (s *Sender) finish(ctx context.Context) {
	for {
		s.mu.Lock()
		n := min(len(s.results), finishBatch)
		batch, releases := s.results[:n:n], s.releases
		s.results, s.releases = s.results[n:], nil
		if len(s.results) == 0 {
			s.results = nil
		}
		s.mu.Unlock()
		if len(batch) == 0 && len(releases) == 0 {
			return
		}
		s.writeResults(ctx, batch)
		s.writeReleases(ctx, releases)
	}
}

func (s *Sender) writeResults(ctx context.Context, batch []finished) {
	if len(batch) == 0 {
		return
	}
	results, tasks := make([]Result, len(batch)), make([]*task, len(batch))
	for i, f := range batch {
		results[i], tasks[i] = f.result, f.task
	}
	s.write(ctx, tasks, "the results of webhook deliveries", func() error {
		late, err := s.cfg.Queue.FinishDeliveries(ctx, results)
		s.stats.late.Add(int64(late))
		return err
	})
	s.settle(batch)
	s.retries(results)
}

// settle forgets that endpoints answered 410, now that the store knows.
func (s *Sender) settle(batch []finished) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range batch {
		if f.result.Attempt.Gone() {
			f.task.e.gone = false
			s.recall(f.task.e.webhookID)
		}
	}
}

// retries sees to it that the next claim is not too late for what failed.
func (s *Sender) retries(results []Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range results {
		if results[i].State == webhook.RetryScheduled && (s.planned.IsZero() || results[i].NextAttemptAt.Before(s.planned)) {
			s.Wake()
			return
		}
	}
}

func (s *Sender) writeReleases(ctx context.Context, tasks []*task) {
	if len(tasks) == 0 {
		return
	}
	leases := make([]Lease, len(tasks))
	for i, t := range tasks {
		leases[i] = t.Lease
	}
	s.write(ctx, tasks, "leases of webhook deliveries", func() error {
		return s.cfg.Queue.ReleaseDeliveries(ctx, leases)
	})
	s.Wake() // they are due again
}

// write calls f until it succeeds. It gives up when ctx is done or the leases
// have ended, since others may have the deliveries by then.
func (s *Sender) write(ctx context.Context, tasks []*task, what string, f func() error) {
	var last time.Time
	for _, t := range tasks {
		if t.until.After(last) {
			last = t.until
		}
	}
	for {
		err := f()
		if err == nil {
			break
		}
		s.stats.storeErrors.Add(1)
		if ctx.Err() != nil || s.cfg.Now().After(last) {
			s.stats.unwritten.Add(int64(len(tasks)))
			s.cfg.Log.ErrorContext(ctx, "gave up writing "+what+"; they are sent again", "count", len(tasks), "error", err)
			break
		}
		s.cfg.Log.WarnContext(ctx, "cannot write "+what+"; trying again", "count", len(tasks), "error", err)
		wait := time.NewTimer(retryStore)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
	}
	s.written(tasks)
}

// written gives up what the store knows of.
func (s *Sender) written(tasks []*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	wake := s.full
	for _, t := range tasks {
		e := t.e
		e.held--
		s.held--
		e.usedAt = now
		wake = wake || e.wants()
		if e.held == 0 && e.resume.IsZero() {
			delete(s.busy, e)
		}
	}
	if wake {
		s.Wake()
	}
}
