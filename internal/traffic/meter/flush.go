package meter

import (
	"context"
	"fmt"
	"slices"

	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/usage"
)

// transactionSize is the maximum size of the bodies of one transaction in bytes, so that
// changes wait only briefly for it. A flush is far smaller unless the store has failed.
const transactionSize = 16 << 20

// Sync returns when every request taken before the call is in the store.
func (m *Meter) Sync(ctx context.Context) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	m.collect()
	if m.cfg.Settle != nil && len(m.pending) > 0 {
		if err := m.cfg.Settle(ctx); err != nil {
			return err
		}
	}
	for len(m.pending) > 0 {
		batch, isNew := m.batches.Open()
		if isNew {
			m.sending = m.batchLen()
		}
		sent := m.pending[:m.sending]
		if err := m.cfg.Store.AppendTraffic(ctx, batch, sent); err != nil {
			return fmt.Errorf("write %d chunks of traffic: %w", len(m.pending), err)
		}
		m.batches.Close()
		for i := range sent {
			m.size -= len(sent[i].Body)
		}
		clear(sent)
		m.pending, m.sending = m.pending[m.sending:], 0
	}
	m.pending = nil
	return nil
}

// batchLen returns how many of the pending chunks make the next batch.
func (m *Meter) batchLen() (n int) {
	for size := 0; n < len(m.pending) && (n == 0 || size+len(m.pending[n].Body) <= transactionSize); n++ {
		size += len(m.pending[n].Body)
	}
	return n
}

func (m *Meter) lock(ctx context.Context) error {
	select {
	case m.flushing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the traffic meter: %w", ctx.Err())
	}
}

func (m *Meter) unlock() { <-m.flushing }

// collect encodes the counts as chunks. Meanwhile the other window counts.
func (m *Meter) collect() {
	m.mu.Lock()
	w := m.active
	if len(w.cells) == 0 {
		m.mu.Unlock()
		return
	}
	m.active, m.spare = m.spare, nil
	m.mu.Unlock()

	for _, c := range w.chunks() {
		m.pending = append(m.pending, c)
		m.size += len(c.Body)
	}
	m.forget()
	if len(w.cells) > flushCells || w.useShares.Taken() > flushCells || len(w.sent) > flushSent || len(w.subjects) > flushSent || len(w.charges) > flushCharges { // free the memory of a burst
		w = newWindow()
	}
	w.reset()
	m.mu.Lock()
	m.spare = w
	m.mu.Unlock()
}

// forget drops the oldest pending chunks if they are larger than maxPending, and counts
// their requests as lost. It keeps the open batch, which the store may have.
func (m *Meter) forget() {
	end := m.sending
	for ; m.size > maxPending && end < len(m.pending); end++ {
		c := &m.pending[end]
		m.size -= len(c.Body)
		switch c.Part {
		case traffic.Keys: // this part has every request once
			m.lost.Add(uint64(c.Requests()))
		case traffic.Usage:
			m.unbilled.Add(usage.Total(c.Body))
		}
	}
	m.pending = slices.Delete(m.pending, m.sending, end)
}
