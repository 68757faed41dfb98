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
func (d *Detector) Start(context.Context) error {
	if err := d.group.Start(d.run); err != nil {
		return fmt.Errorf("start the event detector: %w", err)
	}
	return nil
}

// Stop writes all events, regardless of the time since the previous ones, and ends. It
// returns an error if the store fails or ctx ends first.
func (d *Detector) Stop(ctx context.Context) error {
	if err := d.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the event detector: %w", err)
	}
	for {
		if err := d.write(ctx, true); err != nil {
			return fmt.Errorf("write the last events: %w", err)
		}
		if len(d.unwritten) == 0 && !d.pending() {
			return nil
		}
	}
}

// Sync returns when every event that was due before the call is in the store. It returns an
// error after Stop, and waits until ctx ends before Start.
func (d *Detector) Sync(ctx context.Context) error {
	written, ended := make(chan struct{}), d.group.Grace().Done()
	select {
	case d.syncs <- written:
	case <-ended:
		return errors.New("the event detector has stopped")
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-written:
		return nil
	case <-ended:
		return errors.New("the event detector has stopped")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run writes due events until ctx ends.
func (d *Detector) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var syncs []chan struct{}
	failing := false
	for {
		err := d.write(ctx, false)
		if ctx.Err() != nil {
			return
		}
		wait := d.untilDue()
		switch {
		case err != nil:
			if !failing {
				d.cfg.Log.Warn("writing events of the data plane failed; it is retried", "error", err)
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
		case written := <-d.syncs:
			syncs = append(syncs, written)
		case <-d.workUnless(err):
		}
	}
}

// workUnless returns the channel of new work, or nil after a failure, after which only the timer
// counts.
func (d *Detector) workUnless(err error) <-chan struct{} {
	if err != nil {
		return nil
	}
	return d.work
}

// untilDue returns the time until the next event is due; 0 if one is due now.
func (d *Detector) untilDue() time.Duration {
	now := d.cfg.Now()
	wait := d.untilTarget(now)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case len(d.queue) > 0 || len(d.fresh) > 0:
		return 0
	case len(d.notified) > 0:
		return min(wait, max(0, d.notified[0].next.Sub(now)))
	default:
		return wait
	}
}

// pending reports whether there is anything that makes an event at Stop.
func (d *Detector) pending() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queue) > 0 || len(d.groups) > 0 || d.hasUntold()
}

// write creates a batch of the due events, or of all if last, and stores it. If that fails,
// the batch stays in unwritten, and is written first the next time, with the same
// identifiers.
func (d *Detector) write(ctx context.Context, last bool) error {
	if len(d.unwritten) == 0 {
		made, err := d.gather(last)
		if err != nil {
			return err
		}
		d.unwritten = made
	}
	if len(d.unwritten) == 0 {
		return nil
	}
	err := d.cfg.Store.AppendEvents(ctx, d.unwritten)
	if err != nil && fault.CodeOf(err) != fault.Conflict { // Conflict: an earlier call did store them
		return fmt.Errorf("write %d events: %w", len(d.unwritten), err)
	}
	d.unwritten = nil
	d.cfg.Wake()
	return nil
}

// gather creates up to maxBatch due events.
func (d *Detector) gather(last bool) ([]event.Event, error) {
	made, err := d.gatherTargets(last)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cfg.Now()
	add := func(account string, t event.Type, data any) error {
		e, err := event.New(account, t, now, data)
		made = append(made, e)
		return err
	}
	n := min(len(d.queue), maxBatch-len(made))
	for i := range d.queue[:n] {
		if !d.mayRaise(d.queue[i].account, event.RateLimitExceeded, now) {
			d.lost.Add(1)
			continue
		}
		if err := add(d.queue[i].account, event.RateLimitExceeded, d.queue[i].data); err != nil {
			return nil, err
		}
	}
	d.queue = d.queue[n:]
	for len(made) < maxBatch {
		g := d.nextGroup(now, last)
		if g == nil {
			break
		}
		if g.data.Occurrences == 0 { // no errors for a second: the next error is a first error again
			delete(d.groups, g.name)
			continue
		}
		if !last && !d.mayRaise(g.account, event.GatewayUpstreamError, now) { // its errors are counted in a later event
			g.next = now.Add(minInterval)
			d.notified = append(d.notified, g)
			continue
		}
		data := g.data
		data.RequestID, data.Reason = id.Format(id.Request, g.last), g.reason
		if err := add(g.account, event.GatewayUpstreamError, data); err != nil {
			return nil, err
		}
		g.data.Occurrences = 0
		g.next = now.Add(minInterval)
		d.notified = append(d.notified, g)
	}
	return made, nil
}

// nextGroup removes and returns the group that is due first, or returns nil.
func (d *Detector) nextGroup(now time.Time, last bool) *group {
	list := &d.fresh
	if len(*list) == 0 {
		if list = &d.notified; len(*list) == 0 || !last && (*list)[0].next.After(now) {
			return nil
		}
	}
	g := (*list)[0]
	(*list)[0] = nil
	*list = (*list)[1:]
	return g
}
