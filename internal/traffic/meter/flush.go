package meter

import (
	"context"
	"fmt"

	"github.com/keygate/keygate/internal/traffic"
)

// transactionSize is how many bytes of bodies one transaction writes at most, so
// that a change waits little behind it. What one flush makes is far smaller unless
// the store was away.
const transactionSize = 16 << 20

// Sync returns when everything that was taken before the call is in the store.
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
		return fmt.Errorf("wait for the meter: %w", ctx.Err())
	}
}

func (m *Meter) unlock() { <-m.flushing }

// collect makes chunks of what was counted. Meanwhile the other window counts.
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
	if len(w.cells) > flushCells { // memory of a rush is not kept
		w = newWindow()
	}
	w.reset()
	m.mu.Lock()
	m.spare = w
	m.mu.Unlock()
}

// forget drops the oldest chunks if the store has not taken any for so long that
// they are too many, and counts the requests that are lost with them.
func (m *Meter) forget() {
	for m.size > mostPending {
		c := &m.pending[0]
		m.size -= len(c.Body)
		if c.Part == traffic.Keys { // it has every request once
			m.lost.Add(uint64(c.Requests()))
		}
		m.pending = m.pending[1:]
	}
}
