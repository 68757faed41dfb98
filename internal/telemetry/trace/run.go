package trace

import (
	"context"
	"fmt"
	"time"
)

// Start begins to send, until Stop.
func (t *Tracer) Start(context.Context) error {
	if err := t.group.Start(t.run); err != nil {
		return fmt.Errorf("start the exporter of traces: %w", err)
	}
	return nil
}

func (t *Tracer) run(ctx context.Context) {
	defer t.sender.close()
	sending := t.group.Grace()
	ticks := time.NewTicker(t.settings.delay)
	defer ticks.Stop()
	failing := false
	for {
		everything := false
		var told chan struct{}
		select {
		case <-ctx.Done():
			t.sendAll(sending, &failing)
			return
		case <-ticks.C:
			everything = true
		case told = <-t.sync:
			everything = true
		case <-t.hurry:
		}
		for everything && t.Waiting() > 0 || t.whole() {
			t.send(sending, t.next(), &failing)
		}
		if told != nil {
			close(told)
		}
	}
}

func (t *Tracer) sendAll(ctx context.Context, failing *bool) {
	for batch := t.next(); len(batch) > 0; batch = t.next() {
		t.send(ctx, batch, failing)
	}
}

// send sends a batch or counts it as lost. failing tells of the one before, so
// that the log has one line for one trouble.
func (t *Tracer) send(ctx context.Context, batch []finished, failing *bool) {
	ctx, cancel := context.WithTimeout(ctx, t.settings.exportLimit)
	defer cancel()
	refused, err := t.sender.send(ctx, t.encode(batch))
	switch {
	case err != nil:
		t.lost.Add(uint64(len(batch)))
		if !*failing {
			t.cfg.Log.Warn("traces cannot be sent; those of now are lost and counted", "error", err)
		}
	case refused > 0:
		t.lost.Add(min(refused, uint64(len(batch))))
	case *failing:
		t.cfg.Log.Info("traces are sent again")
	}
	*failing = err != nil
}

// Sync returns when what was taken before the call is sent, or lost. The error
// is ctx's.
func (t *Tracer) Sync(ctx context.Context) error {
	told := make(chan struct{})
	select {
	case t.sync <- told:
	case <-t.group.Grace().Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the traces: %w", ctx.Err())
	}
	select {
	case <-told:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the traces: %w", ctx.Err())
	}
}

// stopTime is how long Stop tries to send what is left. It is short, so that a
// collector that is away leaves time for what is worth more.
const stopTime = 2 * time.Second

// Stop sends what is left, for two seconds at most. What is not sent by then, and
// what comes later, is lost, which is no error: nobody's request depends on it.
func (t *Tracer) Stop(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	sending, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if t.group.Stop(sending) == nil {
		return nil
	}
	// The attempt that runs was just cancelled: the goroutine ends soon.
	if err := t.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the exporter of traces: %w", err)
	}
	return nil
}
