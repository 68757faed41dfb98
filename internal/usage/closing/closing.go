// Package closing makes usage records final (contract, plans, section 8). When an hour has ended and every node has stored
// what it counted in it, the chunks of the hour become blocks of records. Blocks of 35 days ago become blocks of days.
package closing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/usage"
)

// Store is where chunks and records are.
type Store interface {
	usage.Store
	TrafficBacklog(ctx context.Context, t traffic.Tier, s traffic.State, before int64, limit int) ([]traffic.Backlog, error)
	TrafficChunks(ctx context.Context, seqs []int64, f func(*traffic.Chunk) error) error
}

// Config configures a Closer. Store and Flush are required.
type Config struct {
	Store Store
	// Flush returns when the store has what counts of every request that ended before the call.
	Flush   func(ctx context.Context) error
	Process string           // names this process among all, also earlier ones
	Alone   bool             // no other process shares the store while this one runs
	Now     func() time.Time // nil means time.Now
	// Retention returns the time by which records are past their retention, or the zero time if that is not known yet. Nil
	// means Now.
	Retention func() time.Time
	Log       *slog.Logger // nil discards
}

const (
	period = time.Second
	// settle is how long after an hour most of its requests have ended. Later ones are in the records that the next closing
	// makes.
	settle = 3 * time.Second
	// closeTimeout is how long a node that lives and stores nothing holds up the closing of an hour.
	closeTimeout = 2 * time.Hour
	// remembered is how long a process that has stopped is known.
	remembered    = 48 * time.Hour
	setsAtOnce    = 5000
	trimBatch     = 200
	complainEvery = time.Minute
	mostFailed    = 6 // then a closing that fails is tried once in 2⁶ − 1 periods, about a minute
)

// Closer closes hours until Stop.
type Closer struct {
	cfg    Config
	marked time.Time // the hour for whose beginning the process has marked its usage
	closed time.Time // until when all hours were closed, by the clock as it was then
	told   time.Time // when a failure was logged last
	failed int       // how often Step has failed since it succeeded, at most mostFailed
	skip   int       // how many periods pass until the next attempt
	lag    atomic.Int64
	// mostParts and mostBytes are the constants, but in tests.
	mostParts, mostBytes int
	group                service.Group
}

// New returns a Closer that works after Start. The only error is a missing Config.Store or Config.Flush.
func New(cfg Config) (*Closer, error) {
	if cfg.Store == nil || cfg.Flush == nil {
		return nil, errors.New("usage/closing: Config.Store and Config.Flush are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Retention == nil {
		cfg.Retention = cfg.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Closer{cfg: cfg, mostParts: mostParts, mostBytes: mostBytes}, nil
}

// Start closes hours in the background until Stop.
func (c *Closer) Start(context.Context) error {
	err := c.group.Start(func(ctx context.Context) { service.Every(ctx, period, c.try) })
	if err != nil {
		return fmt.Errorf("start the closing of usage: %w", err)
	}
	return nil
}

// Stop ends after the present transaction.
func (c *Closer) Stop(ctx context.Context) error {
	if err := c.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the closing of usage: %w", err)
	}
	return nil
}

// Lag returns how long ago the newest hour ended that is not closed yet; 0 if there is none.
func (c *Closer) Lag() time.Duration { return time.Duration(c.lag.Load()) }

func (c *Closer) try(ctx context.Context) {
	if c.skip > 0 {
		c.skip--
		return
	}
	err := c.Step(ctx)
	if err == nil {
		c.failed = 0
		return
	}
	c.failed = min(c.failed+1, mostFailed)
	c.skip = 1<<c.failed - 2
	if now := c.cfg.Now(); ctx.Err() == nil && now.Sub(c.told).Abs() >= complainEvery {
		c.told = now
		c.cfg.Log.Warn("making usage records failed; it is retried", "error", err)
	}
}

// Step does what is due now. Calls of it must not overlap.
func (c *Closer) Step(ctx context.Context) error {
	now := c.cfg.Now().UTC()
	hour := now.Add(-settle).Truncate(time.Hour)
	if hour.Equal(c.closed) {
		return nil
	}
	c.lag.Store(int64(now.Sub(hour)))
	if !hour.Equal(c.marked) {
		if err := c.cfg.Flush(ctx); err != nil {
			return err
		}
		if !c.cfg.Alone {
			if err := c.cfg.Store.MarkUsage(ctx, c.cfg.Process, now); err != nil {
				return fmt.Errorf("mark usage: %w", err)
			}
		}
		c.marked = hour
	}
	closed, complete, err := c.cfg.Store.UsageState(ctx, hour)
	if err != nil {
		return fmt.Errorf("read the state of usage: %w", err)
	}
	if closed.After(hour) { // by a clock that was ahead: it says nothing of hours that have ended since
		closed = time.Time{}
	}
	if c.closed = closed; !complete {
		hour = now.Add(-closeTimeout).Truncate(time.Hour)
	}
	if !hour.After(closed) {
		return nil
	}
	if err := c.close(ctx, hour); err != nil { // what has failed for one account does not keep old records of all
		return errors.Join(err, c.roll(ctx), c.trim(ctx))
	}
	if err := c.cfg.Store.EndUsage(ctx, hour, now.Add(-remembered)); err != nil {
		return fmt.Errorf("note closed hours of usage: %w", err)
	}
	if c.closed = hour; complete {
		c.lag.Store(0)
	}
	return errors.Join(c.roll(ctx), c.trim(ctx))
}

// set is an account and an hour or day.
type set struct {
	account string
	start   int64
}

// mostConflicts bounds how often in a row close finds that others have taken what it was about to close.
const mostConflicts = 100

// close makes records of all chunks of hours before the time until. Another node, or a flush that joins chunks, may take
// chunks that it has found: what they leave is found by another search.
func (c *Closer) close(ctx context.Context, until time.Time) error {
	for conflicts := 0; ; {
		var order []set
		seqs := map[set][]int64{}
		more := false
		for _, state := range []traffic.State{traffic.Merged, traffic.Fresh} {
			list, err := c.cfg.Store.TrafficBacklog(ctx, traffic.Open, state, until.Unix(), setsAtOnce)
			if err != nil {
				return fmt.Errorf("find usage: %w", err)
			}
			more = more || len(list) == setsAtOnce
			for _, b := range list {
				of := set{b.AccountID, b.Start}
				if seqs[of] == nil {
					order = append(order, of)
				}
				seqs[of] = append(seqs[of], b.Seqs...)
			}
		}
		var errs []error
		lost := false
		for _, of := range order {
			isLost, err := c.closeSet(ctx, of, seqs[of])
			if lost = lost || isLost; err != nil { // a damaged chunk does not hold up other accounts
				errs = append(errs, fmt.Errorf("close the usage of %s: %w", time.Unix(of.start, 0).UTC().Format(time.RFC3339), err))
			}
		}
		if conflicts++; !lost {
			conflicts = 0
		}
		switch {
		case len(errs) > 0 || !more && !lost:
			return errors.Join(errs...)
		case conflicts == mostConflicts:
			return errors.New("close usage: others have taken what was found each time")
		}
	}
}

// closeSet makes records of chunks of one account and hour, in closings of bounded size. It reports whether others have
// taken some of the chunks meanwhile: then the rest is not closed.
func (c *Closer) closeSet(ctx context.Context, of set, seqs []int64) (isLost bool, err error) {
	m := maker{Closer: c, account: of.account, tier: usage.Hours, start: of.start, own: map[int64]bool{}}
	err = m.closeChunks(ctx, seqs)
	if isLost = fault.CodeOf(err) == fault.Conflict; isLost {
		err = nil
	}
	return isLost, errors.Join(err, m.end(ctx))
}

// closeChunks makes records of chunks. Each closing makes those of some identities final, and keeps what it has read of
// others. The error is fault.Conflict if others have taken a chunk.
func (m *maker) closeChunks(ctx context.Context, seqs []int64) error {
	c := m.Closer
	p := parts{mostParts: c.mostParts, mostBytes: c.mostBytes, read: func(seqs []int64, f func(int64, []byte) error) error {
		return c.cfg.Store.TrafficChunks(ctx, seqs, func(chunk *traffic.Chunk) error { return f(chunk.Seq, chunk.Body) })
	}}
	if err := p.find(seqs); err != nil {
		return err
	}
	for p.next() != nil {
		var sum usage.Table
		taken, err := p.take(&sum, sum.AddBody)
		if err != nil {
			return err
		}
		closing := &usage.Closing{Chunks: taken}
		if next := p.next(); next != nil {
			closing.Kept = usage.Encode(sum.Cut(next))
		}
		made, err := m.finish(ctx, closing, &sum, p.next() == nil)
		if err != nil {
			return err
		}
		p.add(closing.Kept, made.Kept)
	}
	return nil
}

// unlessFaster returns err, or nil if it says that another node was faster.
func unlessFaster(err error) error {
	if fault.CodeOf(err) == fault.Conflict {
		return nil
	}
	return err
}

// maker makes the records of an account and an hour or day.
type maker struct {
	*Closer
	account string
	tier    usage.Tier
	start   int64
	own     map[int64]bool // blocks that it has made, which have no identity in common with those that it will make
	from    int64          // the first block that may be another's
	untold  int            // number of records that became final and that no event has named
}

// finish numbers the uses of a closing and carries it out. isLast says that there is no other.
func (m *maker) finish(ctx context.Context, closing *usage.Closing, sum *usage.Table, isLast bool) (*usage.Closed, error) {
	if err := m.follow(ctx, sum); err != nil {
		return nil, fmt.Errorf("read earlier records: %w", err)
	}
	closing.Made = usage.Encode(sum.Finish())
	return m.store(ctx, closing, isLast)
}

// follow makes the uses of sum follow those of earlier records that are not in own. If all earlier ones are, it reads each
// once: a large account has many closings.
func (m *maker) follow(ctx context.Context, sum *usage.Table) error {
	hasOthers := false
	q := usage.BlockQuery{AccountID: m.account, Tier: m.tier, From: m.start, Before: m.start + 1, First: m.from, Limit: math.MaxInt32}
	return m.cfg.Store.UsageBlocks(ctx, q, func(b *usage.Block) error {
		if !m.own[b.Number] {
			hasOthers = true
			return sum.Follow(b.Body)
		}
		if !hasOthers {
			m.from = b.Number + 1
		}
		return nil
	})
}

// store carries out a closing.
func (m *maker) store(ctx context.Context, closing *usage.Closing, isLast bool) (*usage.Closed, error) {
	closing.AccountID, closing.Tier, closing.Start = m.account, m.tier, m.start
	untold := m.untold + closing.Records()
	if isLast && m.tier == usage.Hours {
		closing.Tell, untold = untold, 0
	}
	made, err := m.cfg.Store.CloseUsage(ctx, closing, m.cfg.Now())
	if err != nil {
		return nil, fmt.Errorf("store records: %w", err)
	}
	if m.tier == usage.Days {
		return made, nil
	}
	m.untold = untold
	for n := range int64(len(closing.Made)) {
		m.own[made.Last-n] = true
	}
	return made, nil
}

// end tells of records that became final in closings of which none was the last: the next one failed, or another node was
// faster with it.
func (m *maker) end(ctx context.Context) error {
	if m.untold == 0 {
		return nil
	}
	_, err := m.store(context.WithoutCancel(ctx), &usage.Closing{}, true)
	return err
}

// roll makes records of days of those of hours that are past their retention.
func (c *Closer) roll(ctx context.Context) error {
	now := c.cfg.Retention()
	if now.IsZero() {
		return nil
	}
	before := now.Add(-usage.HoursKept).UTC().Truncate(24 * time.Hour)
	for {
		list, err := c.cfg.Store.OldUsage(ctx, before.Unix(), setsAtOnce)
		if err != nil {
			return fmt.Errorf("find old usage: %w", err)
		}
		var order []set
		hours := map[set][]usage.OldBlocks{}
		for _, o := range list {
			day := set{o.AccountID, o.Start - o.Start%86400}
			if hours[day] == nil {
				order = append(order, day)
			}
			hours[day] = append(hours[day], o)
		}
		for _, day := range order {
			if err := c.rollDay(ctx, day, hours[day]); err != nil {
				return fmt.Errorf("sum the usage of %s: %w", time.Unix(day.start, 0).UTC().Format(time.DateOnly), err)
			}
		}
		if len(list) < setsAtOnce {
			return nil
		}
	}
}

// rollDay makes records of a day of blocks of its hours. An identity that is in blocks of several closings has a record of
// each.
func (c *Closer) rollDay(ctx context.Context, day set, hours []usage.OldBlocks) error {
	p := parts{mostParts: c.mostParts, mostBytes: c.mostBytes, read: func(numbers []int64, f func(int64, []byte) error) error {
		for _, n := range numbers {
			q := usage.BlockQuery{AccountID: day.account, Tier: usage.Hours, From: day.start, Before: day.start + 86400, First: n, Limit: 1}
			err := c.cfg.Store.UsageBlocks(ctx, q, func(b *usage.Block) error {
				if b.Number != n { // it is gone
					return nil
				}
				return f(n, b.Body)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}}
	for _, h := range hours {
		if err := p.find(h.Numbers); err != nil {
			return err
		}
	}
	m := maker{Closer: c, account: day.account, tier: usage.Days, start: day.start}
	for p.next() != nil {
		var sum usage.Table
		taken, err := p.take(&sum, sum.AddDay)
		if err != nil {
			return unlessFaster(err)
		}
		if _, err := m.finish(ctx, &usage.Closing{Blocks: taken}, &sum, p.next() == nil); err != nil {
			return unlessFaster(err)
		}
	}
	return nil
}

// trim removes days that are past their retention.
func (c *Closer) trim(ctx context.Context) error {
	now := c.cfg.Retention()
	if now.IsZero() {
		return nil
	}
	for more := true; more; {
		var err error
		if more, err = c.cfg.Store.TrimUsage(ctx, now.Add(-usage.DaysKept).Unix(), trimBatch); err != nil {
			return fmt.Errorf("remove old usage: %w", err)
		}
	}
	return nil
}
