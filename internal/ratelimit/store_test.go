package ratelimit

import (
	"context"
	"errors"
	"sync"
)

// memoryStore is a DailyStore in memory.
type memoryStore struct {
	mu     sync.Mutex
	counts map[DailyCount]int64 // Used, keyed by the count with Used and Lost set to 0
	lost   map[DailyCount]int64 // Lost
	fail   bool                 // calls fail
	half   bool                 // a failing call saves nevertheless
	saves  int
	loads  int
	onSave func(counts []DailyCount) // called before a call saves, without the lock
}

var errStore = errors.New("the store is unavailable")

func newMemoryStore() *memoryStore {
	return &memoryStore{counts: make(map[DailyCount]int64), lost: make(map[DailyCount]int64)}
}

func (s *memoryStore) LoadDailyCounts(ctx context.Context, day int64) ([]DailyCount, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	if s.fail {
		return nil, errStore
	}
	var rows []DailyCount
	for c, used := range s.counts {
		if c.Day == day {
			c.Used, c.Lost = used, s.lost[c]
			rows = append(rows, c)
		}
	}
	return rows, ctx.Err()
}

func (s *memoryStore) SaveDailyCounts(ctx context.Context, counts []DailyCount) error {
	if s.onSave != nil {
		s.onSave(counts)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saves++
	if !s.fail || s.half {
		for _, c := range counts {
			used, lost := c.Used, c.Lost
			c.Used, c.Lost = 0, 0
			s.counts[c], s.lost[c] = used, lost
		}
	}
	if s.fail {
		return errStore
	}
	return nil
}

// used returns the count of a limit for all callers.
func (s *memoryStore) used(limitID string, day int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[DailyCount{LimitID: limitID, Day: day}]
}
