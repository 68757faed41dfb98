package meter

import (
	"context"
	"fmt"

	"github.com/keygate/keygate/internal/traffic"
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
	for len(m.pending) > 0 {
		n, size := 0, 0
		for ; n < len(m.pending) && (n == 0 || size+len(m.pending[n].Body) <= transactionSize); n++ {
			size += len(m.pending[n].Body)
		}
		if err := m.cfg.Store.AppendTraffic(ctx, m.pending[:n]); err != nil {
			return fmt.Errorf("write %d chunks of traffic: %w", len(m.pending), err)
		}
		clear(m.pending[:n])
		m.pending, m.size = m.pending[n:], m.size-size
	}
	m.pending = nil
	return nil
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
	if len(w.cells) > flushCells { // free the memory of a burst
		w = newWindow()
	}
	w.reset()
	m.mu.Lock()
	m.spare = w
	m.mu.Unlock()
}

// forget drops the oldest pending chunks if they are larger than maxPending, and counts
// their requests as lost.
func (m *Meter) forget() {
	for m.size > maxPending {
		c := &m.pending[0]
		m.size -= len(c.Body)
		if c.Part == traffic.Keys { // this part has every request once
			m.lost.Add(uint64(c.Requests()))
		}
		m.pending = m.pending[1:]
	}
}
