package limitstore

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/keygate/keygate/internal/logpace"
	"github.com/keygate/keygate/internal/ratelimit"
)

// inspectInterval is the time between two inspections of a store to which no new connection was
// made, and inspectAgain is the time until the next inspection after a failed one.
const (
	inspectInterval = 5 * time.Second
	inspectAgain    = 500 * time.Millisecond
)

// watch is what is known of the servers of the store.
type watch struct {
	mu       sync.Mutex
	runs     map[string]int64 // by the run_id of each primary, its evicted_keys
	lost     int64            // time of the store from which on a lost bucket means a new loss: each loss is counted once
	emptied  atomic.Bool      // buckets are lost, and the next inspection finds out whether a server was replaced
	urgent   atomic.Bool      // the next inspection is due
	replaced atomic.Int64
	evicted  int64

	failures, restarts, losses, evictions logpace.Gate // for the lines about each
}

// tell writes a line to the log unless there were too many of its kind.
func (s *Store) tell(g *logpace.Gate, level slog.Level, text string, args ...any) {
	if ok, _ := g.Pass(s.cfg.Now().Sub(s.began)); ok {
		s.cfg.Log.Log(context.Background(), level, text, args...)
	}
}

// Stats counts what was noticed about the store.
type Stats struct {
	Replaced int64 // how often a server had been restarted, had taken over or was emptied, so that buckets may be full again
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

// noteLost looks in the answers for buckets that the node knows and that the store does not have any more.
func (s *Store) noteLost(questions []ratelimit.Question) {
	w := &s.watch
	for i := range questions {
		for j := range questions[i].Takes {
			t := &questions[i].Takes[j]
			if !questions[i].Answered || t.Birth <= 0 || t.Known == 0 || t.Born == 0 || t.Born == t.Birth {
				continue
			}
			w.mu.Lock()
			if t.Birth >= w.lost {
				w.lost = max(t.Born, t.Birth+1)
				w.emptied.Store(true)
				w.urgent.Store(true)
			}
			w.mu.Unlock()
		}
	}
}

// inspectIfDue inspects the store after a new connection was made, when it has lost buckets, and now and then.
func (s *Store) inspectIfDue(ctx context.Context, c rueidis.Client) {
	now, due := s.cfg.Now().UnixNano(), s.next.Load()
	dials := s.dials.Load()
	if dials == s.inspected.Load() && now < due && !s.watch.urgent.Load() || !s.next.CompareAndSwap(due, now+int64(inspectInterval)) {
		return
	}
	s.inspected.Store(dials) // a failing inspection is not repeated with each question
	s.watch.urgent.Store(false)
	if err := s.inspect(ctx, c); err != nil {
		s.next.Store(now + int64(inspectAgain))
		s.tell(&s.watch.failures, slog.LevelWarn, "inspecting the limit store failed", "error", err)
	}
}

// inspect reads which servers are the store's primaries and whether they keep every key.
func (s *Store) inspect(ctx context.Context, c rueidis.Client) error {
	dials, emptied := s.dials.Load(), s.watch.emptied.Swap(false)
	runs, clock, err := s.primaries(ctx, c)
	if err != nil {
		if emptied {
			s.watch.emptied.Store(true)
		}
		return err
	}
	s.watch.update(runs, clock, emptied, s)
	s.inspected.Store(dials)
	return nil
}

// primaries returns the evicted_keys of the primaries by their run_id, and the latest time of their clocks.
func (s *Store) primaries(ctx context.Context, c rueidis.Client) (runs map[string]int64, clock int64, err error) {
	runs = map[string]int64{}
	for _, node := range c.Nodes() {
		text, err := node.Do(ctx, node.B().Info().Build()).ToString()
		if err != nil {
			return nil, 0, fmt.Errorf("inspect the limit store: %w", err)
		}
		info := parseInfo(text)
		if info["role"] == "slave" {
			continue
		}
		if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" {
			return nil, 0, fmt.Errorf("%w: its maxmemory-policy is %s, so that it may forget limits: set it to noeviction", ratelimit.ErrUnsuitable, policy)
		}
		runs[info["run_id"]], _ = strconv.ParseInt(info["evicted_keys"], 10, 64)
		now, _ := strconv.ParseInt(info["server_time_usec"], 10, 64)
		clock = max(clock, now)
	}
	return runs, clock, nil
}

// update compares the servers with the servers of the last inspection. clock is their time; emptied says that
// buckets are lost.
func (w *watch) update(runs map[string]int64, clock int64, emptied bool, s *Store) {
	w.mu.Lock()
	defer w.mu.Unlock()
	replaced := false
	for run, evicted := range runs {
		before, known := w.runs[run]
		if w.runs != nil && !known {
			replaced = true
			w.replaced.Add(1)
			s.tell(&w.restarts, slog.LevelWarn, "a server of the limit store was restarted or has taken over: nodes restore the levels that they know", "address", s.cfg.Address.String(), "total", w.replaced.Load())
		}
		if known && evicted > before {
			w.evicted += evicted - before
			s.tell(&w.evictions, slog.LevelError, "the limit store evicts keys, and with them what is used of limits: give it more memory and the policy noeviction", "keys", evicted-before, "total", w.evicted)
		}
	}
	switch {
	case replaced:
		w.lost = max(w.lost, clock) // a bucket from before that is missing later was lost with the server
	case emptied:
		w.replaced.Add(1)
		s.tell(&w.losses, slog.LevelWarn, "the limit store was emptied, as by FLUSHALL: nodes restore the levels that they know", "address", s.cfg.Address.String(), "total", w.replaced.Load())
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
