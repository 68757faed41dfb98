package detect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// Start begins to write, until Stop.
func (w *Detector) Start(context.Context) error {
	if err := w.group.Start(w.run); err != nil {
		return fmt.Errorf("start the event detector: %w", err)
	}
	return nil
}

// Stop writes everything that was taken, whatever time passed since the event
// before. It returns an error if that fails or takes longer than ctx.
func (w *Detector) Stop(ctx context.Context) error {
	if err := w.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the event detector: %w", err)
	}
	for {
		if err := w.write(ctx, true); err != nil {
			return fmt.Errorf("write the last events: %w", err)
		}
		if len(w.unsent) == 0 && !w.pending() {
			return nil
		}
	}
}

// Sync returns when every event that was due before the call is in the store. It
// needs a Detector between Start and Stop.
func (w *Detector) Sync(ctx context.Context) error {
	written, ended := make(chan struct{}), w.group.Grace().Done()
	select {
	case w.syncs <- written:
	case <-ended:
		return errors.New("the making of events has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-written:
		return nil
	case <-ended:
		return errors.New("the making of events has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run writes whatever is due until ctx ends.
func (w *Detector) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var syncs []chan struct{}
	failing := false
	for {
		err := w.write(ctx, false)
		if ctx.Err() != nil {
			return
		}
		wait := w.untilDue()
		switch {
		case err != nil:
			if !failing {
				w.cfg.Log.Warn("events of the data plane cannot be written; they wait", "error", err)
			}
			failing, wait = true, retryAfter
		case wait <= 0:
			continue
		default:
			failing = false
			for _, written := range syncs {
				close(written)
			}
			syncs = nil
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case written := <-w.syncs:
			syncs = append(syncs, written)
		case <-w.workUnless(err):
		}
	}
}

// workUnless gives no signal after a failure: the timer ends the wait.
func (w *Detector) workUnless(err error) <-chan struct{} {
	if err != nil {
		return nil
	}
	return w.work
}

// untilDue returns how long nothing has to be written; 0 if something has.
func (w *Detector) untilDue() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.queue) > 0 || len(w.fresh) > 0:
		return 0
	case len(w.told) > 0:
		return max(0, w.told[0].next.Sub(w.cfg.Now()))
	default:
		return time.Hour
	}
}

// pending reports whether anything is not yet told.
func (w *Detector) pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue) > 0 || len(w.groups) > 0
}

// write makes a batch of events of what is due, of everything if last, and stores
// it. What the store does not take stays in unsent and is written first the next
// time, with the identifiers that it has.
func (w *Detector) write(ctx context.Context, last bool) error {
	if len(w.unsent) == 0 {
		made, err := w.gather(last)
		if err != nil {
			return err
		}
		w.unsent = made
	}
	if len(w.unsent) == 0 {
		return nil
	}
	err := w.cfg.Store.AppendEvents(ctx, w.unsent)
	if err != nil && fault.CodeOf(err) != fault.Conflict { // Conflict: a call before was carried out after all
		return fmt.Errorf("write %d events: %w", len(w.unsent), err)
	}
	w.unsent = nil
	w.cfg.Wake()
	return nil
}

// gather turns up to maxBatch of what is due into events.
func (w *Detector) gather(last bool) ([]event.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.Now()
	var made []event.Event
	add := func(account string, t event.Type, data any) error {
		e, err := event.New(account, t, now, data)
		made = append(made, e)
		return err
	}
	n := min(len(w.queue), maxBatch)
	for i := range w.queue[:n] {
		if err := add(w.queue[i].account, event.RateLimitExceeded, w.queue[i].data); err != nil {
			return nil, err
		}
	}
	w.queue = w.queue[n:]
	for len(made) < maxBatch {
		g := w.nextGroup(now, last)
		if g == nil {
			break
		}
		if g.data.Occurrences == 0 { // a second without errors: the next is a first one again
			delete(w.groups, g.name)
			continue
		}
		data := g.data
		data.RequestID, data.Reason = id.Format(id.Request, g.last), g.reason
		if err := add(g.account, event.GatewayUpstreamError, data); err != nil {
			return nil, err
		}
		g.data.Occurrences = 0
		g.next = now.Add(interval)
		w.told = append(w.told, g)
	}
	return made, nil
}

// nextGroup takes the group that is due first, or nil.
func (w *Detector) nextGroup(now time.Time, last bool) *group {
	list := &w.fresh
	if len(*list) == 0 {
		if list = &w.told; len(*list) == 0 || !last && (*list)[0].next.After(now) {
			return nil
		}
	}
	g := (*list)[0]
	(*list)[0] = nil
	*list = (*list)[1:]
	return g
}
