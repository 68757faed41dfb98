package health

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// syncPause is the least time between two looks at what is to be checked.
const syncPause = 100 * time.Millisecond

// leastWait is the least time that the scheduler sleeps.
const leastWait = 2 * time.Millisecond

// Config configures a Service. Healths, Changed, Pools and Now are required.
type Config struct {
	// Healths calls each for what is to be checked, until it returns false: balance.Fleet.Healths. Check.Use is a *snapshot.Check.
	Healths func(each func(*balance.Health, balance.Check) bool)
	// Changed receives an element when that has changed.
	Changed <-chan struct{}
	// Pools connects, within the bounds of connections to upstreams, and by the address rules.
	Pools *upstream.Pools
	// Serves reports whether an account is served; targets of others are not checked. Nil means that all are.
	Serves func(accountID string) bool
	// Now returns the time as package balance has it.
	Now func() time.Duration
	// Version is that of Keygate, for User-Agent.
	Version string
}

// Service checks targets, from Start to Stop.
type Service struct {
	cfg   Config
	group service.Group
	done  atomic.Uint64  // checks that have ended
	work  service.Signal // the scheduler looks at the schedule earlier than it meant to

	mu       sync.Mutex
	schedule *schedule
	probes   map[*balance.Health]*probe
	wakeAt   time.Duration // when the scheduler looks next
}

// New returns a Service that is not started. The error is a missing setting.
func New(cfg Config) (*Service, error) {
	if cfg.Healths == nil || cfg.Changed == nil || cfg.Pools == nil || cfg.Now == nil {
		return nil, errors.New("health: Config.Healths, Changed, Pools and Now are required")
	}
	if cfg.Serves == nil {
		cfg.Serves = func(string) bool { return true }
	}
	return &Service{cfg: cfg, work: service.NewSignal(), schedule: newSchedule(jitter), probes: map[*balance.Health]*probe{}}, nil
}

// jitter returns an interval that differs by up to a tenth.
func jitter(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// Start begins to check, until Stop.
func (s *Service) Start(context.Context) error { return s.group.Start(s.run) }

// Stop ends the checks, those that run too, and returns when they have ended.
func (s *Service) Stop(ctx context.Context) error { return s.group.Stop(ctx) }

// run is the scheduler.
func (s *Service) run(ctx context.Context) {
	s.sync()
	timer := time.NewTimer(0)
	defer timer.Stop()
	synced := s.cfg.Now()
	changed := false
	var batch []*probe
	for {
		now := s.cfg.Now()
		if changed && now >= synced+syncPause {
			s.sync()
			changed, synced = false, now
		}
		wait := time.Hour
		batch, wait = s.due(now, batch[:0], wait)
		for _, p := range batch {
			if !s.group.Go(func(ctx context.Context) { s.checkNow(ctx, p) }) {
				return
			}
		}
		clear(batch)
		if changed {
			wait = min(wait, synced+syncPause-now)
		}
		timer.Reset(max(wait, leastWait))
		select {
		case <-ctx.Done():
			return
		case <-s.cfg.Changed:
			changed = true
		case <-s.work:
		case <-timer.C:
		}
	}
}

// due returns the probes whose checks begin now, and how long there are no others, at most.
func (s *Service) due(now time.Duration, batch []*probe, most time.Duration) ([]*probe, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch = s.schedule.due(now, batch)
	wait := most
	if at, never := s.schedule.wakeAt(); !never {
		wait = min(wait, at-now)
	}
	s.wakeAt = now + wait
	return batch, wait
}

// sync makes the schedule have what is to be checked.
func (s *Service) sync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := make(map[*balance.Health]bool, len(s.probes))
	var fresh []*probe
	shared := map[*snapshot.Check]*settings{}
	for _, p := range s.probes {
		shared[p.check.settings.Check] = p.check.settings
	}
	s.cfg.Healths(func(h *balance.Health, c balance.Check) bool {
		current[h] = true
		if of, is := c.Use.(*snapshot.Check); is && s.probes[h] == nil {
			if shared[of] == nil {
				shared[of] = &settings{Check: of}
			}
			p := &probe{check: newCheck(h, shared[of])}
			s.probes[h] = p
			fresh = append(fresh, p)
		}
		return true
	})
	// The targets of an upstream come together, so that the first that is found healthy is not alone for long.
	order := make(map[*probe]balance.Name, len(fresh))
	for _, p := range fresh {
		p.check.health.Address().Upstreams(func(n balance.Name) bool { order[p] = n; return false })
	}
	slices.SortFunc(fresh, func(a, b *probe) int {
		of, other := order[a], order[b]
		return cmp.Or(cmp.Compare(of.Account, other.Account), cmp.Compare(of.Gateway, other.Gateway), cmp.Compare(of.Upstream, other.Upstream),
			cmp.Compare(a.check.key().Address, b.check.key().Address))
	})
	for _, p := range fresh {
		s.schedule.add(p, p.check.key().Account, p.check.key().Address, p.check.settings.Interval)
	}
	for h, p := range s.probes {
		if !current[h] {
			delete(s.probes, h)
			s.schedule.remove(p)
		}
	}
}

// checkNow checks once, and reports what it has found.
func (s *Service) checkNow(ctx context.Context, p *probe) {
	result, reached := notKnown, ""
	if s.cfg.Serves(p.check.key().Account) {
		result, reached = p.check.do(ctx, s.cfg.Pools, s.cfg.Version)
	}
	s.done.Add(1)
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if result != notKnown && !p.gone && ctx.Err() == nil {
		p.check.health.Report(now, result == good, string(result))
	}
	if reached != "" {
		s.schedule.move(p, reached)
	}
	s.schedule.ended(now, p)
	if at, never := s.schedule.wakeAt(); !never && at < s.wakeAt {
		s.wakeAt = at
		s.work.Notify()
	}
}
