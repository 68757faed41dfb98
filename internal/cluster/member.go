package cluster

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/snapshot"
)

// LeaseStore carries out the calls of a node's lease.
type LeaseStore interface {
	// Carry carries out a call, as lease.Carry says. If it returns an error, whether the call was
	// carried out is unknown.
	Carry(ctx context.Context, c lease.Call) (lease.Answer, error)
}

// Follower keeps the configuration of this node current.
type Follower interface {
	// Applied returns the position up to which every change is in force on this node.
	Applied() snapshot.Position
	// CatchUp puts every change in force that was committed before the call.
	CatchUp(ctx context.Context, only ...snapshot.Change) error
}

// MemberConfig configures a Member. All fields are required except Steer, Regained, Serve and Log.
type MemberConfig struct {
	Name  string
	TTL   time.Duration
	Store LeaseStore
	// Follower may be set with Follow instead, because it is created after the Member.
	Follower Follower
	// Clock reads the clock by which the lease is held.
	Clock func() lease.Instant
	// Quick reads a clock for Held, as in lease.HolderConfig. nil means Clock.
	Quick func() lease.Instant
	// Random is the source of the boot.
	Random io.Reader
	// Confirm is called after each Join, until it succeeds. The node does not decide about requests before:
	// see Shares. Nil confirms nothing.
	Confirm func(ctx context.Context) error
	// If a call has returned the time of the store's clock, Steer receives it, and how long the call
	// took, before the answer is used: see ratelimit.Clock. Nil ignores it.
	Steer func(now time.Time, took time.Duration)
	// Regained is called before a lease is held that does not continue the last one, with a lock: it must not block or
	// call the Member. Nil does nothing.
	Regained func()
	// Serve makes the node go on after its lease has ended, with the configuration that it has.
	Serve bool
	Log   *slog.Logger
}

// Member keeps this node's lease. It is safe for concurrent use.
type Member struct {
	cfg     MemberConfig
	serving atomic.Bool // with Serve, after the first lease
	// unconfirmed is set from before a Join takes effect until it is confirmed.
	unconfirmed atomic.Bool
	claimant    atomic.Pointer[string] // of the newest Join
	wake        service.Signal
	group       service.Group

	joined   chan struct{} // closed when the first lease is held, or cannot be
	joinOnce sync.Once
	joinErr  error

	boot   lease.Boot
	holder *lease.Holder
	mu     sync.Mutex             // of holder, except for Held and Remaining, of epoch, and of writes of serving and tooOld
	epoch  int64                  // of the newest Join
	tooOld atomic.Pointer[string] // why this version cannot hold a lease, or nil
}

// NewMember returns a Member. The error comes from Random.
func NewMember(cfg MemberConfig) (*Member, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	var boot lease.Boot
	if _, err := io.ReadFull(cfg.Random, boot[:]); err != nil {
		return nil, fmt.Errorf("identify this process among the nodes: %w", err)
	}
	return &Member{
		cfg: cfg, wake: service.NewSignal(), joined: make(chan struct{}), boot: boot,
		holder: lease.NewHolder(lease.HolderConfig{Node: cfg.Name, Boot: boot, TTL: cfg.TTL, Clock: cfg.Clock, Quick: cfg.Quick, Jitter: rand.Float64}),
	}, nil
}

// Process returns the name of this process, which no other process ever had: its boot in hexadecimal digits.
func (m *Member) Process() string { return hex.EncodeToString(m.boot[:]) }

// Follow sets the Follower. It must be called before Start.
func (m *Member) Follow(f Follower) { m.cfg.Follower = f }

// Held reports whether this node may decide about requests at this moment: it holds a lease, or is
// configured to go on without one. It does not allocate.
func (m *Member) Held() bool {
	return m.holder.Held() && !m.unconfirmed.Load() || m.serving.Load()
}

// Leased reports whether this node holds a lease at this moment.
func (m *Member) Leased() bool { return m.holder.Held() }

// Claimant returns the name under which this node claims records of the store at this moment, as
// lease.Row.Claimant says, or "" if it holds no lease. It does not allocate.
func (m *Member) Claimant() string {
	name := m.claimant.Load()
	if name == nil || !m.holder.Held() || m.claimant.Load() != name { // another lease may have begun meanwhile
		return ""
	}
	return *name
}

// Remaining returns how long the lease still runs, or 0 without one.
func (m *Member) Remaining() time.Duration { return m.holder.Remaining() }

// Applied notes that Follower.Applied has changed. It does not block.
func (m *Member) Applied() {
	m.wake.Notify()
}

// Restarted notes that the change log has another history than the configuration in force here. The
// lease is given up at once. It does not block.
func (m *Member) Restarted() {
	m.mu.Lock()
	held := m.holder.Held()
	m.holder.GiveUp()
	m.mu.Unlock()
	if held {
		m.cfg.Log.Warn("the database has another history than this node, or its change log was trimmed too far: the lease is given up and everything is read again")
	}
	m.Applied()
}

// Unreadable notes that the change log has a change that this version cannot read. The lease is given up at once,
// and the node does not decide about requests, even with Serve. It does not block.
func (m *Member) Unreadable(err error) {
	m.mu.Lock()
	m.holder.GiveUp()
	first := m.setTooOld(err)
	m.mu.Unlock()
	if first {
		m.logTooOld(err)
	}
}

// setTooOld notes why this version cannot hold a lease. It reports whether it could before. The caller holds the
// lock.
func (m *Member) setTooOld(err error) (first bool) {
	text := err.Error()
	first = m.tooOld.Swap(&text) == nil
	m.serving.Store(false)
	return first
}

func (m *Member) logTooOld(err error) {
	m.cfg.Log.Error("the lease is given up: this version cannot read changes of newer nodes; upgrade this node", "error", err)
}

// TooOld returns why this version cannot hold a lease, or "".
func (m *Member) TooOld() string {
	if why := m.tooOld.Load(); why != nil {
		return *why
	}
	return ""
}

// Start begins to join, and returns when the lease is held. While another process with the same name may use
// its lease, Start waits; if that lease is renewed meanwhile, the error is lease.ErrNameInUse.
func (m *Member) Start(ctx context.Context) error {
	if err := m.group.Start(m.run); err != nil {
		return fmt.Errorf("start the lease: %w", err)
	}
	select {
	case <-m.joined:
		if m.joinErr == nil {
			return nil
		}
		return errors.Join(m.joinErr, m.group.Stop(ctx))
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("wait for the lease of this node: %w", ctx.Err()), m.group.Stop(context.WithoutCancel(ctx)))
	}
}

// Stop gives the lease back, so that no change waits for this node.
func (m *Member) Stop(ctx context.Context) error {
	if err := m.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the lease: %w", err)
	}
	m.mu.Lock()
	m.serving.Store(false)
	c, held := m.holder.Stop()
	m.mu.Unlock()
	if !held {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout(m.cfg.TTL))
	defer cancel()
	if _, err := m.cfg.Store.Carry(ctx, c); err != nil {
		m.cfg.Log.Warn("the lease could not be given back: changes wait until it has run out", "error", err)
	}
	return nil
}

// callTimeout bounds a call of the lease.
func callTimeout(ttl time.Duration) time.Duration { return min(ttl/4, 5*time.Second) }

func (m *Member) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	reports := reports{log: m.cfg.Log}
	for ctx.Err() == nil {
		m.mu.Lock()
		c, wait, due := m.holder.Next(lease.Position(m.cfg.Follower.Applied()))
		m.mu.Unlock()
		if due {
			m.call(ctx, c, &reports)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-m.wake:
		}
	}
}

// call carries out one call.
func (m *Member) call(ctx context.Context, c lease.Call, reports *reports) {
	calling, cancel := context.WithTimeout(ctx, callTimeout(m.cfg.TTL))
	began := time.Now()
	a, err := m.cfg.Store.Carry(calling, c)
	cancel()
	if err == nil && m.cfg.Steer != nil && !a.Time.IsZero() {
		m.cfg.Steer(a.Time, time.Since(began))
	}
	joins := err == nil && c.Kind == lease.Join && a.Result == lease.Done
	m.mu.Lock()
	if joins {
		m.unconfirmed.Store(m.cfg.Confirm != nil)
		m.epoch = a.Row.Epoch
		name := a.Row.Claimant()
		m.claimant.Store(&name)
	}
	if err == nil && a.Result == lease.Done && c.Kind != lease.Acknowledge && m.cfg.Regained != nil && !m.holder.Held() {
		m.cfg.Regained()
	}
	if err == nil {
		err = m.holder.Answer(c, a)
	} else {
		m.holder.Failed(c)
	}
	held := m.holder.Held()
	// With the lock, so that Unreadable comes before all of it or after.
	if joins && ctx.Err() == nil {
		m.tooOld.Store(nil)
	}
	joined := held && !m.unconfirmed.Load() && ctx.Err() == nil
	if joined {
		m.serving.Store(m.cfg.Serve)
	}
	m.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if joins && m.cfg.Confirm != nil {
		m.group.Go(func(ctx context.Context) { m.confirm(ctx, a.Row.Epoch) })
	}
	switch {
	case joined:
		m.settleJoin(nil)
	case errors.Is(err, lease.ErrTooOld):
		m.mu.Lock()
		first := m.setTooOld(err)
		m.mu.Unlock()
		if first {
			m.logTooOld(err)
		}
		m.settleJoin(err)
	case errors.Is(err, lease.ErrNameInUse):
		m.settleJoin(fmt.Errorf("%w: %q; set --node-name to a name of its own", err, m.cfg.Name))
	}
	reports.lease(held, a.Result, err)
	if a.Result == lease.OtherHistory || a.Result == lease.Behind && c.Kind == lease.Join || joins && a.Newest != c.Position {
		catching, cancel := context.WithTimeout(ctx, m.cfg.TTL)
		defer cancel()
		if err := m.cfg.Follower.CatchUp(catching); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("the newest configuration could not be applied", "error", err)
		}
	}
}

// confirmRetry is the wait after Confirm has failed.
const confirmRetry = 100 * time.Millisecond

// confirm calls Confirm until it succeeds, or until the lease of the epoch is no longer the newest.
func (m *Member) confirm(ctx context.Context, epoch int64) {
	for logged := false; ; logged = true {
		err := m.cfg.Confirm(ctx)
		m.mu.Lock()
		current := m.epoch == epoch
		if err == nil && current {
			m.unconfirmed.Store(false)
			m.serving.Store(m.cfg.Serve && m.tooOld.Load() == nil)
		}
		m.mu.Unlock()
		switch {
		case !current || ctx.Err() != nil:
			return
		case err == nil:
			m.settleJoin(nil)
			return
		case !logged:
			m.cfg.Log.Warn("the other nodes have not confirmed that this node has joined; trying again", "error", err)
		}
		if !service.Wait(ctx, confirmRetry) {
			return
		}
	}
}

func (m *Member) settleJoin(err error) {
	m.joinOnce.Do(func() {
		m.joinErr = err
		close(m.joined)
	})
}

// reports logs when the lease begins and ends, and why it is not renewed.
type reports struct {
	log  *slog.Logger
	held bool
	why  string
}

func (r *reports) lease(held bool, result lease.Result, err error) {
	why := ""
	switch {
	case err != nil:
		why = err.Error()
	case result == lease.Lost:
		why = "another node has ended it, or it was deleted"
	case result == lease.Behind:
		why = "this node has not applied the newest changes"
	case result == lease.OtherHistory:
		why = "the database has another history"
	case result == lease.Occupied:
		why = "waiting for the lease of an earlier process with this name to run out"
	}
	switch {
	case held && !r.held:
		r.log.Info("the lease is held")
	case !held && r.held:
		r.log.Error("the lease is lost", "reason", why)
	case why != "" && why != r.why:
		r.log.Warn("the lease was not renewed", "reason", why, "held", held)
	}
	r.held, r.why = held, why
}
