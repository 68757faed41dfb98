package trace

import (
	"context"
	"fmt"
	"time"
)

// Start begins to export, until Stop.
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
		var synced chan struct{}
		select {
		case <-ctx.Done():
			t.sendAll(sending, &failing)
			return
		case <-ticks.C:
			everything = true
		case synced = <-t.sync:
			everything = true
		case <-t.batchReady:
		}
		for everything && t.Waiting() > 0 || t.hasBatch() {
			t.send(sending, t.next(), &failing)
		}
		if synced != nil {
			close(synced)
		}
	}
}

func (t *Tracer) sendAll(ctx context.Context, failing *bool) {
	for batch := t.next(); len(batch) > 0; batch = t.next() {
		t.send(ctx, batch, failing)
	}
}

// send exports a batch, or counts it as lost. failing says that the previous batch failed, so that
// consecutive failures make one log line.
func (t *Tracer) send(ctx context.Context, batch []finished, failing *bool) {
	ctx, cancel := context.WithTimeout(ctx, t.settings.exportLimit)
	defer cancel()
	refused, err := t.sender.send(ctx, t.encode(batch))
	switch {
	case err != nil:
		t.lost.Add(uint64(len(batch)))
		if !*failing {
			t.cfg.Log.Warn("exporting traces failed; they are lost and counted until it works again", "error", err)
		}
	case refused > 0:
		t.lost.Add(min(refused, uint64(len(batch))))
	case *failing:
		t.cfg.Log.Info("exporting traces works again")
	}
	*failing = err != nil
}

// Sync returns when every request taken before the call is exported or lost. If ctx ends
// first, it returns an error that wraps ctx.Err().
func (t *Tracer) Sync(ctx context.Context) error {
	synced := make(chan struct{})
	select {
	case t.sync <- synced:
	case <-t.group.Grace().Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the export of traces: %w", ctx.Err())
	}
	select {
	case <-synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the export of traces: %w", ctx.Err())
	}
}

// stopTime is how long Stop tries to export what is left. It is short, so that an
// unreachable collector leaves time for services that matter more.
const stopTime = 2 * time.Second

// Stop exports the remaining spans, for two seconds at most. Spans that are not exported by then,
// or that are taken later, are lost, which is not an error.
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
