package limitstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/keygate/keygate/internal/ratelimit"
)

// inspectInterval is the time between two inspections of a store to which no new connection was
// made.
const inspectInterval = 5 * time.Second

// watch is what is known of the servers of the store.
type watch struct {
	mu       sync.Mutex
	runs     map[string]int64 // by the run_id of each primary, its evicted_keys
	replaced atomic.Int64
	evicted  int64
}

// Stats counts what was noticed about the store.
type Stats struct {
	Replaced int64 // servers that had been restarted or had taken over, so that buckets may be full again
	Evicted  int64 // keys that the store has evicted
}

// Stats returns the present counts. It takes a nil s.
func (s *Store) Stats() Stats {
	if s == nil {
		return Stats{}
	}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	return Stats{s.watch.replaced.Load(), s.watch.evicted}
}

// Generation implements ratelimit.LimitStore.
func (s *Store) Generation() int64 { return s.watch.replaced.Load() }

// inspectIfDue inspects the store after a new connection was made, and now and then.
func (s *Store) inspectIfDue(ctx context.Context, c rueidis.Client) {
	now, due := s.cfg.Now().UnixNano(), s.next.Load()
	dials := s.dials.Load()
	if dials == s.inspected.Load() && now < due || !s.next.CompareAndSwap(due, now+int64(inspectInterval)) {
		return
	}
	if err := s.inspect(ctx, c); err != nil {
		s.cfg.Log.Warn("inspecting the limit store failed", "error", err)
	}
}

// inspect reads which servers are the store's primaries and whether they keep every key.
func (s *Store) inspect(ctx context.Context, c rueidis.Client) error {
	dials := s.dials.Load()
	runs := map[string]int64{}
	for _, node := range c.Nodes() {
		text, err := node.Do(ctx, node.B().Info().Build()).ToString()
		if err != nil {
			return fmt.Errorf("inspect the limit store: %w", err)
		}
		info := parseInfo(text)
		if info["role"] == "slave" {
			continue
		}
		if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" {
			return fmt.Errorf("%w: its maxmemory-policy is %s, so that it may forget limits: set it to noeviction", ratelimit.ErrUnsuitable, policy)
		}
		runs[info["run_id"]], _ = strconv.ParseInt(info["evicted_keys"], 10, 64)
	}
	s.watch.update(runs, s)
	s.inspected.Store(dials)
	return nil
}

// update compares the servers with those of the last inspection.
func (w *watch) update(runs map[string]int64, s *Store) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for run, evicted := range runs {
		before, known := w.runs[run]
		if w.runs != nil && !known {
			w.replaced.Add(1)
			s.cfg.Log.Warn("a server of the limit store was restarted or has taken over: nodes restore the levels that they know", "address", s.cfg.Address.String())
		}
		if known && evicted > before {
			w.evicted += evicted - before
			s.cfg.Log.Error("the limit store evicts keys, and with them what is used of limits: give it more memory and the policy noeviction", "keys", evicted-before)
		}
	}
	w.runs = runs
}

// parseInfo parses the result of INFO.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}
