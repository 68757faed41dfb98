package ratelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// memoryStore is a DailyStore in memory.
type memoryStore struct {
	mu     sync.Mutex
	counts map[DailyCount]int64                   // Used, keyed by the count with Used, Lost and Own set to 0
	own    map[string]map[DailyCount]DailyFigures // by node
	lost   map[DailyCount]int64                   // Lost
	fail   bool                                   // calls fail
	half   bool                                   // a failing call saves nevertheless
	saves  int
	loads  int
	loaded int                       // rows that the last load returned
	onSave func(claims []DailyClaim) // called before a call saves, without the lock
}

var errStore = errors.New("the store is unavailable")

func newMemoryStore() *memoryStore {
	return &memoryStore{counts: make(map[DailyCount]int64), lost: make(map[DailyCount]int64), own: make(map[string]map[DailyCount]DailyFigures)}
}

func (s *memoryStore) LoadDailyCounts(ctx context.Context, node string, day int64, limitIDs ...string) ([]DailyCount, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	if s.fail {
		return nil, errStore
	}
	var rows []DailyCount
	defer func() { s.loaded = len(rows) }()
	for c, used := range s.counts {
		if c.Day == day && (len(limitIDs) == 0 || slices.Contains(limitIDs, c.LimitID)) {
			own := s.own[node][c]
			c.Used, c.Lost, c.Own, c.OwnLost = used, s.lost[c], own.Used, own.Lost
			rows = append(rows, c)
		}
	}
	return rows, ctx.Err()
}

func (s *memoryStore) ReserveDaily(ctx context.Context, node string, day int64, claims []DailyClaim) (time.Time, error) {
	if s.onSave != nil {
		s.onSave(claims)
	}
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saves++
	if s.own[node] == nil {
		s.own[node] = map[DailyCount]DailyFigures{}
	}
	if !s.fail || s.half {
		for i := range claims {
			c := DailyCount{LimitID: claims[i].LimitID, KeyID: claims[i].KeyID, Day: day}
			total, own := claims[i].Grant(DailyFigures{s.counts[c], s.lost[c]}, s.own[node][c])
			s.counts[c], s.lost[c], s.own[node][c] = total.Used, total.Lost, own
		}
	}
	if s.fail {
		return time.Time{}, errStore
	}
	return time.Time{}, nil
}

// used returns the count of a limit for all callers.
func (s *memoryStore) used(limitID string, day int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[DailyCount{LimitID: limitID, Day: day}]
}
