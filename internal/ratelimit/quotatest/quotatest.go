// Package quotatest has a store of quotas in memory, for tests.
package quotatest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/ratelimit"
)

// ErrFailing is the error of a store that fails.
var ErrFailing = errors.New("the store is unavailable")

// Store is a ratelimit.QuotaStore in memory. It is safe for concurrent use.
type Store struct {
	mu       sync.Mutex
	quotas   map[ratelimit.QuotaKey]*quota
	live     map[string]bool
	crashed  map[string]bool
	fail     bool // calls fail
	half     bool // a failing call saves nevertheless
	clock    bool // it has a clock of its own
	told     []int
	recalled map[string]map[ratelimit.QuotaKey]bool
}

type quota struct {
	windows []ratelimit.QuotaWindow
	shares  []map[string]ratelimit.QuotaFigures // of each window
}

// New returns an empty store.
func New() *Store {
	return &Store{quotas: map[ratelimit.QuotaKey]*quota{}, live: map[string]bool{}, crashed: map[string]bool{}, recalled: map[string]map[ratelimit.QuotaKey]bool{}}
}

// ClaimQuotas implements ratelimit.QuotaStore.
func (m *Store) ClaimQuotas(ctx context.Context, process string, now time.Time, claims []ratelimit.QuotaClaim) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	if m.crashed[process] {
		return time.Time{}, ErrFailing
	}
	own := time.Time{}
	if m.clock {
		own = time.Now()
		now = own
	}
	if !m.fail || m.half {
		for i := range claims {
			m.claim(process, now, &claims[i])
		}
	}
	if m.fail {
		return time.Time{}, ErrFailing
	}
	return own, nil
}

func (m *Store) claim(process string, now time.Time, c *ratelimit.QuotaClaim) {
	delete(m.recalled[process], c.QuotaKey)
	q := m.quotas[c.QuotaKey]
	if q == nil {
		q = &quota{}
		m.quotas[c.QuotaKey] = q
	}
	n := q.at(now, c.Calendar)
	for i := range q.windows {
		if i != n && q.windows[i].Start.Equal(c.Window) {
			q.put(i, process, c.Own)
		}
	}
	share := ratelimit.QuotaShare{Own: q.shares[n][process]}
	for other, f := range q.shares[n] {
		if other != process && m.live[other] {
			share.OthersHold += f.Reserved
		}
	}
	c.Grant(q.windows[n], share)
	q.windows[n] = c.Answer
	q.shares[n][process] = c.Share.Own
	m.told = append(m.told, c.Passed...)
	if c.Recalls() {
		m.ask(process, q, n, c.QuotaKey)
	}
}

// ask asks the other processes that live and hold units, and returns how many these are.
func (m *Store) ask(process string, q *quota, n int, key ratelimit.QuotaKey) (waiting int) {
	for other, f := range q.shares[n] {
		if other == process || !m.live[other] || f.Reserved == 0 {
			continue
		}
		if m.recalled[other] == nil {
			m.recalled[other] = map[ratelimit.QuotaKey]bool{}
		}
		m.recalled[other][key] = true
		waiting++
	}
	return waiting
}

// at returns the index of the window that has the time.
func (q *quota) at(now time.Time, c calendar.Calendar) int {
	start, end := c.Window(now)
	for i, w := range q.windows {
		switch {
		case !w.Start.After(now) && w.End.After(now):
			return i
		case !w.End.After(now) && w.End.After(start):
			start = w.End
		case w.Start.After(now) && w.Start.Before(end):
			end = w.Start
		}
	}
	q.windows = append(q.windows, ratelimit.QuotaWindow{Start: start, End: end})
	q.shares = append(q.shares, map[string]ratelimit.QuotaFigures{})
	return len(q.windows) - 1
}

func (q *quota) put(i int, process string, f ratelimit.QuotaFigures) {
	was := q.shares[i][process]
	q.shares[i][process] = f
	q.windows[i].All.Taken += f.Taken - was.Taken
	q.windows[i].All.Reserved += f.Reserved - was.Reserved
}

// RecalledQuotas implements ratelimit.QuotaStore.
func (m *Store) RecalledQuotas(_ context.Context, process string, most int) (keys []ratelimit.QuotaKey, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.recalled[process] {
		if len(keys) < most {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// RecallQuotas implements ratelimit.QuotaStore.
func (m *Store) RecallQuotas(_ context.Context, process string, keys []ratelimit.QuotaKey) (waiting int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range keys {
		if q := m.quotas[k]; q != nil {
			waiting += m.ask(process, q, len(q.windows)-1, k)
		}
	}
	return waiting, nil
}

// WindowAt returns the window of a quota that begins at a time.
func (m *Store) WindowAt(k ratelimit.QuotaKey, start time.Time) ratelimit.QuotaWindow {
	m.mu.Lock()
	defer m.mu.Unlock()
	if q := m.quotas[k]; q != nil {
		for _, w := range q.windows {
			if w.Start.Equal(start) {
				return w
			}
		}
	}
	return ratelimit.QuotaWindow{}
}

// Window returns the newest window of a quota.
func (m *Store) Window(k ratelimit.QuotaKey) ratelimit.QuotaWindow {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.quotas[k]
	if q == nil {
		return ratelimit.QuotaWindow{}
	}
	return q.windows[len(q.windows)-1]
}

// Grant grants units in the newest window.
func (m *Store) Grant(k ratelimit.QuotaKey, units int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.quotas[k]
	q.windows[len(q.windows)-1].Grants += units
}

// UseOwnClock makes the store go by time.Now, whatever the clocks of processes show, as a database does that nodes share.
func (m *Store) UseOwnClock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock = true
}

// SetFailing makes calls fail; half makes claims that fail save nevertheless.
func (m *Store) SetFailing(fail, half bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail, m.half = fail, half
}

// SetLive says whether a process lives.
func (m *Store) SetLive(process string, live bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live[process] = live
}

// Crash makes the store lose a process: what it claims from now on fails, and is not saved.
func (m *Store) Crash(process string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, process)
	m.crashed[process] = true
}

// Told returns the percentages of which claims were the first to tell, in rising order.
func (m *Store) Told() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.told))
}
