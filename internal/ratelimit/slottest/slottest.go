// Package slottest has a store of slots in memory, for tests.
package slottest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

// ErrFailing is the error of a store that fails.
var ErrFailing = errors.New("the store is unavailable")

// Store is a ratelimit.SlotStore in memory. It is safe for concurrent use.
type Store struct {
	mu     sync.Mutex
	rows   map[id]*row
	dead   map[string]bool
	fail   bool // calls fail
	half   bool // a failing call saves nevertheless
	took   time.Duration
	claims int
	hangs  chan struct{}
}

type id struct {
	name, process string
	part          int64
}

type row struct {
	share ratelimit.SlotShare
	asked bool
}

// New returns an empty store, whose calls take a time.
func New(took time.Duration) *Store {
	return &Store{rows: map[id]*row{}, dead: map[string]bool{}, took: took}
}

// ClaimSlots implements ratelimit.SlotStore.
func (m *Store) ClaimSlots(ctx context.Context, process string, claims []ratelimit.SlotClaim) error {
	if err := m.travel(ctx); err != nil {
		return err
	}
	if err := m.claim(process, claims); err != nil {
		return err
	}
	return m.travel(ctx)
}

func (m *Store) claim(process string, claims []ratelimit.SlotClaim) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail && !m.half {
		return ErrFailing
	}
	m.claims += len(claims)
	for i := range claims {
		m.claimOne(process, &claims[i])
	}
	if m.fail {
		return ErrFailing
	}
	return nil
}

func (m *Store) claimOne(process string, c *ratelimit.SlotClaim) {
	own := id{c.Name, process, c.Part}
	var others []ratelimit.SlotShare
	for of, r := range m.rows {
		switch {
		case of.name != c.Name || of == own:
		case m.dead[of.process] && of.process != process:
			delete(m.rows, of)
		default:
			others = append(others, r.share)
		}
	}
	c.Grant(others, time.Now())
	if delete(m.rows, own); c.Granted > 0 {
		m.rows[own] = &row{share: c.Share()}
	}
	for of, r := range m.rows {
		r.asked = r.asked || of.name == c.Name && of != own && c.Lacks()
	}
}

// AskedSlots implements ratelimit.SlotStore.
func (m *Store) AskedSlots(ctx context.Context, process string, limit int) (parts []int64, at time.Time, err error) {
	if err := m.travel(ctx); err != nil {
		return nil, at, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail {
		return nil, at, ErrFailing
	}
	for of, r := range m.rows {
		if of.process == process && r.asked && len(parts) < limit {
			parts = append(parts, of.part)
		}
	}
	return parts, time.Now(), nil
}

// TrimSlots implements ratelimit.SlotStore.
func (m *Store) TrimSlots(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for of := range m.rows {
		if m.dead[of.process] {
			delete(m.rows, of)
		}
	}
	return nil
}

// travel waits for half of the time that a call takes.
func (m *Store) travel(ctx context.Context) error {
	m.mu.Lock()
	hangs, took := m.hangs, m.took
	m.mu.Unlock()
	if hangs == nil && took == 0 {
		return ctx.Err()
	}
	wait := time.NewTimer(took / 2)
	defer wait.Stop()
	if hangs != nil {
		wait.Reset(time.Second)
	}
	select {
	case <-hangs:
		return nil
	case <-wait.C:
		if hangs != nil {
			return ErrFailing
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SetFailing makes calls fail; half makes claims that fail save nevertheless.
func (m *Store) SetFailing(fail, half bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail, m.half = fail, half
}

// SetHanging makes calls take until it is called again, or fail after a second.
func (m *Store) SetHanging(hang bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hangs != nil {
		close(m.hangs)
		m.hangs = nil
	}
	if hang {
		m.hangs = make(chan struct{})
	}
}

// SetDead says whether what a process has counts no more.
func (m *Store) SetDead(process string, dead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead[process] = dead
}

// Held returns what all processes have in all.
func (m *Store) Held() (held int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rows {
		held += r.share.Held
	}
	return held
}

// Claims returns how many claims were made.
func (m *Store) Claims() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.claims
}
