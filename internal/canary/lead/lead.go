// Package lead judges the canaries that run, on one of all nodes (targets.md, section 8).
//
//	nodes ─► rows of counts ─► Leader: a canary.Step of each canary ─► Decide ─► Control: progress, advance, abort, pause
//	                              │
//	                              └─► once a minute: the step as one row, in place of the rows that it has added up
//
// A process leads until it is no longer live among the nodes. The next one raises the epoch, without which nothing can be written
// any more, and goes on with what is stored: a row of counts is either in the stored step or there by itself.
//
// The Leader also decides whom a canary leaves out, from the traffic reports of the hour before it began. Nodes count nothing of a
// canary before that.
package lead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/traffic"
)

// The bounds of a Leader.
const (
	// Interval is the time between two looks.
	Interval = 5 * time.Second
	// MaxBytes is about how much of counts and steps a look reads, and how much of steps it writes. Accounts take turns, and so do
	// the canaries of an account.
	MaxBytes = 8 << 20
	// turnBytes and turnRows are what is read in a turn.
	turnBytes = 256 << 10
	turnRows  = 500
	// MaxMemory bounds what the steps of all canaries tell apart, in bytes.
	MaxMemory = 256 << 20
	// noteEvery is the time between two notes of how long a step has run. It is well below canary.MostIdle.
	noteEvery = time.Minute
	// foldEvery is the time between two rows of a step. foldRows is how many rows of counts make one early.
	foldEvery = time.Minute
	foldRows  = 1_500
	// listPage is how many rows are found at once, and listPages how often in a look.
	listPage  = 2_000
	listPages = 10
	// canaryPage is how many canaries are read at once.
	canaryPage = 100
	// maxProgress is how many steps without a decision a look stores the progress of, in turns.
	maxProgress   = 200
	trimEvery     = time.Minute
	trimRows      = 2_000
	trimAtOnce    = 10
	complainEvery = time.Minute
)

// Store keeps what nodes have counted. It is safe for concurrent use. What changes something has the lead: if another process has
// taken it, the error is fault.Conflict, and nothing is changed.
type Store interface {
	// TakeCanaryLead returns the lead, and whether the process has it. It takes the lead if nobody has it, or if the process that has
	// it is not live.
	TakeCanaryLead(ctx context.Context, process string) (l canary.Lead, leads bool, err error)
	// CanaryCountsEnd returns the sequence number of the last row of counts that there ever was.
	CanaryCountsEnd(ctx context.Context) (seq int64, err error)
	// ListCanaryCounts returns up to limit rows of counts behind a sequence number, in their order.
	ListCanaryCounts(ctx context.Context, after int64, limit int) ([]canary.Listed, error)
	// CanaryCountsOf is ListCanaryCounts for one canary, up to a sequence number.
	CanaryCountsOf(ctx context.Context, canaryID string, after, until int64, limit int) ([]canary.Listed, error)
	// ReadCanaryCounts calls f for each of the rows that exist.
	ReadCanaryCounts(ctx context.Context, seqs []int64, f func(seq int64, r *canary.CountRow) error) error
	// CanaryStep returns the stored step of a canary; nil if there is none.
	CanaryStep(ctx context.Context, canaryID string) (*canary.StoredStep, error)
	// FoldCanaryStep stores a step, and removes rows of counts of so many bytes in all.
	FoldCanaryStep(ctx context.Context, l canary.Lead, s *canary.StoredStep, gone []int64, size int64) error
	// TrimCanaryCounts removes up to limit rows of each kind that belong to canaries that are no longer judged. If there are more than
	// canary.MaxStored/2 bytes of counts, it removes those of paused canaries as well, which nobody adds up.
	TrimCanaryCounts(ctx context.Context, l canary.Lead, limit int) (more bool, err error)
	// UndecidedCanaries returns up to limit running canaries for which it is not decided whom they leave out, in the order of their
	// identifiers, after one of them.
	UndecidedCanaries(ctx context.Context, after string, limit int) ([]canary.Canary, error)
	// LeaveOutCallers stores whom a canary leaves out, unless that is decided.
	LeaveOutCallers(ctx context.Context, l canary.Lead, canaryID string, list []byte) error
	// SharedBuckets returns the keys among those given that share the bucket of another one, with that key.
	SharedBuckets(ctx context.Context, accountID string, keyIDs []string) (map[string]string, error)
	traffic.ChunkReader
}

// Control changes canaries.
type Control interface {
	// RunningCanaries returns canaries that are judged, in the order of their identifiers, after one of them.
	RunningCanaries(ctx context.Context, after string, limit int) ([]canary.Canary, error)
	// JudgeCanary stores what the present step (number) has counted, and does what d says: nothing, advance, abort, pause or
	// promote. If the process no longer leads, nothing is changed (fault.Conflict).
	JudgeCanary(ctx context.Context, canaryID string, number int, lead canary.Lead, p canary.Progress, ran canary.Ran, d canary.Decision) error
}

// Config configures a Leader. Store, Control and Process are required.
type Config struct {
	Store   Store
	Control Control
	Process string           // names this process among all that ever used the store
	Now     func() time.Time // by the store's clock, nearly; nil means time.Now
	Log     *slog.Logger     // nil discards
}

// Leader judges canaries while its process leads.
type Leader struct {
	cfg   Config
	group service.Group

	mu      sync.Mutex
	lead    canary.Lead // the zero value if the process does not lead
	running int

	// Used by the looks alone.
	room    *canary.Room
	states  map[string]*state
	after   int64 // rows up to it were found
	turn    int64 // counts turns
	served  string
	trimmed time.Time
	told    time.Time

	lists lists // used by its goroutine alone
}

// New returns a Leader that judges after Start. The only error is a missing field of cfg.
func New(cfg Config) (*Leader, error) {
	if cfg.Store == nil || cfg.Control == nil || cfg.Process == "" {
		return nil, errors.New("canary/lead: Config.Store, Config.Control and Config.Process are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Leader{cfg: cfg, room: canary.NewRoom(MaxMemory), states: map[string]*state{}, lists: lists{failed: map[string]int{}}}, nil
}

// Start begins to judge, until Stop.
func (l *Leader) Start(context.Context) error {
	err := l.group.Start(func(ctx context.Context) {
		service.Every(ctx, Interval, func(ctx context.Context) { l.complain(ctx, &l.told, l.Look(ctx)) })
	}, func(ctx context.Context) {
		service.Every(ctx, listPeriod, func(ctx context.Context) { l.complain(ctx, &l.lists.told, l.LeaveOut(ctx)) })
	})
	if err != nil {
		return fmt.Errorf("start judging canaries: %w", err)
	}
	return nil
}

// Stop ends after the present look. Another process takes the lead when this one is not live any more.
func (l *Leader) Stop(ctx context.Context) error {
	if err := l.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop judging canaries: %w", err)
	}
	return nil
}

// Running returns how many canaries this process judges; 0 if it does not lead.
func (l *Leader) Running() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

func (l *Leader) current() canary.Lead {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lead
}

func (l *Leader) note(lead canary.Lead, running int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lead, l.running = lead, running
}

func (l *Leader) complain(ctx context.Context, told *time.Time, err error) {
	if now := l.cfg.Now(); err != nil && ctx.Err() == nil && now.Sub(*told).Abs() >= complainEvery {
		*told = now
		l.cfg.Log.Warn("judging canaries failed; it is retried", "error", err)
	}
}

// Look judges all canaries that run, if this process leads or can take the lead. Calls of it must not overlap. An error of one canary
// does not keep others from being judged.
func (l *Leader) Look(ctx context.Context) error {
	lead, leads, err := l.cfg.Store.TakeCanaryLead(ctx, l.cfg.Process)
	if err != nil {
		return fmt.Errorf("take the lead: %w", err)
	}
	if !leads {
		l.forget()
		l.note(canary.Lead{}, 0)
		return nil
	}
	if lead != l.current() {
		l.forget()
		if l.after, err = l.cfg.Store.CanaryCountsEnd(ctx); err != nil {
			return fmt.Errorf("find the last counts: %w", err)
		}
		l.note(lead, 0)
	}
	running, err := l.reconcile(ctx)
	if err != nil {
		return err
	}
	l.note(lead, running)
	if err := l.list(ctx); err != nil {
		return err
	}
	if err := l.read(ctx); err != nil {
		return err
	}
	now := l.cfg.Now()
	return errors.Join(l.judge(ctx, lead, now), l.fold(ctx, lead, now), l.trim(ctx, lead, now))
}

// forget drops what was added up. It is in the store.
func (l *Leader) forget() {
	for _, s := range l.states {
		s.step.Release()
	}
	clear(l.states)
}

// reconcile makes the states those of the canaries that run, and returns how many there are.
func (l *Leader) reconcile(ctx context.Context) (running int, err error) {
	seen := map[string]bool{}
	for after := ""; ; {
		page, err := l.cfg.Control.RunningCanaries(ctx, after, canaryPage)
		if err != nil {
			return 0, fmt.Errorf("read running canaries: %w", err)
		}
		for i := range page {
			after = page[i].ID
			seen[after] = true
			l.seen(&page[i])
		}
		if len(page) < canaryPage {
			break
		}
	}
	for canaryID, s := range l.states {
		if !seen[canaryID] {
			s.step.Release()
			delete(l.states, canaryID)
		}
	}
	return len(seen), nil
}

// seen notes the record of a canary that runs.
func (l *Leader) seen(c *canary.Canary) {
	s := l.states[c.ID]
	if first := firstOf(c); s == nil || s.canary.Step != c.Step || s.first != first {
		if s != nil {
			s.step.Release()
		}
		s = &state{first: first, step: canary.NewStepIn(l.room, c.AccountID), until: l.after}
		l.states[c.ID] = s
	}
	s.canary, s.decided = *c, false
	s.queue, s.later = append(s.queue, s.later...), nil
}

// firstOf returns the number from which on what was counted is of the present step.
func firstOf(c *canary.Canary) int {
	if p := lastProgress(c); p.Number > 0 {
		return p.Number
	}
	return c.Number
}

// lastProgress returns the progress of the present step.
func lastProgress(c *canary.Canary) canary.Progress {
	if n := len(c.Progress); n > 0 {
		return c.Progress[n-1]
	}
	return canary.Progress{Step: c.Step + 1, Since: c.Since}
}

// list finds rows that are new.
func (l *Leader) list(ctx context.Context) error {
	for range listPages {
		page, err := l.cfg.Store.ListCanaryCounts(ctx, l.after, listPage)
		if err != nil {
			return fmt.Errorf("find counts: %w", err)
		}
		for _, row := range page {
			l.after = row.Seq
			if s := l.states[row.CanaryID]; s != nil {
				s.queue = append(s.queue, row)
			}
		}
		if len(page) < listPage {
			break
		}
	}
	return nil
}

// trim removes now and then what nobody needs any more.
func (l *Leader) trim(ctx context.Context, lead canary.Lead, now time.Time) error {
	if now.Sub(l.trimmed).Abs() < trimEvery {
		return nil
	}
	l.trimmed = now
	for range trimAtOnce {
		more, err := l.cfg.Store.TrimCanaryCounts(ctx, lead, trimRows)
		if err = unlessLost(err); err != nil {
			return fmt.Errorf("remove counts of canaries that have ended: %w", err)
		}
		if !more {
			break
		}
	}
	return nil
}

// unlessLost returns err, or nil if another process has taken the lead, which the next look finds.
func unlessLost(err error) error {
	if fault.CodeOf(err) == fault.Conflict {
		return nil
	}
	return err
}
