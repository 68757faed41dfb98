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
	remembered = 48 * time.Hour
	// mostRows, mostIdentities and mostBytes bound what one closing reads, in memory and in the transaction that it writes,
	// which has a block for each 32 KiB. What is left of the account and hour makes records with the next sequence.
	mostRows       = 1000
	mostIdentities = 1 << 18
	mostBytes      = 16 << 20
	setsAtOnce     = 5000
	trimBatch      = 200
	complainEvery  = time.Minute
	mostFailed     = 6 // then a closing that fails is tried once in 2⁶ − 1 periods, about a minute
)

// Closer closes hours until Stop.
type Closer struct {
	cfg    Config
	marked time.Time // the hour for whose beginning the process has marked its usage
	closed time.Time // until when all hours were closed
	told   time.Time // when a failure was logged last
	failed int       // how often Step has failed since it succeeded, at most mostFailed
	skip   int       // how many periods pass until the next attempt
	lag    atomic.Int64
	group  service.Group
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
	return &Closer{cfg: cfg}, nil
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
	if !hour.After(c.closed) {
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

// close makes records of all chunks of hours before the time until.
func (c *Closer) close(ctx context.Context, until time.Time) error {
	for {
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
		for _, of := range order {
			if err := c.closeSet(ctx, of, seqs[of]); err != nil { // a damaged chunk does not hold up other accounts
				errs = append(errs, fmt.Errorf("close the usage of %s: %w", time.Unix(of.start, 0).UTC().Format(time.RFC3339), err))
			}
		}
		if !more || len(errs) > 0 {
			return errors.Join(errs...)
		}
	}
}

// closeSet makes records of chunks of one account and hour.
func (c *Closer) closeSet(ctx context.Context, of set, seqs []int64) error {
	for len(seqs) > 0 {
		var sum usage.Table
		done := 0
		err := c.cfg.Store.TrafficChunks(ctx, seqs[:min(len(seqs), mostRows)], func(chunk *traffic.Chunk) error {
			if err := sum.AddBody(chunk.Body); err != nil {
				return fmt.Errorf("chunk %d: %w", chunk.Seq, err)
			}
			if done++; isFull(&sum) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		if done == 0 { // another node was faster
			return nil
		}
		err = c.finish(ctx, &usage.Closing{AccountID: of.account, Tier: usage.Hours, Start: of.start, Chunks: seqs[:done]}, &sum)
		if err != nil {
			return err
		}
		seqs = seqs[done:]
	}
	return nil
}

// isFull reports whether a closing has read enough.
func isFull(sum *usage.Table) bool { return sum.Len() >= mostIdentities || sum.Size() >= mostBytes }

// errEnough stops reading early.
var errEnough = errors.New("enough")

// finish numbers the uses of a closing and stores them. If another node was faster, it does nothing.
func (c *Closer) finish(ctx context.Context, closing *usage.Closing, sum *usage.Table) error {
	earlier := usage.BlockQuery{AccountID: closing.AccountID, Tier: closing.Tier, From: closing.Start, Before: closing.Start + 1, Limit: math.MaxInt32}
	err := c.cfg.Store.UsageBlocks(ctx, earlier, func(b *usage.Block) error { return sum.Follow(b.Body) })
	if err != nil {
		return fmt.Errorf("read earlier records: %w", err)
	}
	closing.Made = usage.Encode(sum.Finish())
	if err := c.cfg.Store.CloseUsage(ctx, closing, c.cfg.Now()); err != nil && fault.CodeOf(err) != fault.Conflict {
		return fmt.Errorf("store records: %w", err)
	}
	return nil
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

// rollDay makes records of a day of blocks of its hours.
func (c *Closer) rollDay(ctx context.Context, day set, hours []usage.OldBlocks) error {
	for len(hours) > 0 {
		var sum usage.Table
		closing := &usage.Closing{AccountID: day.account, Tier: usage.Days, Start: day.start}
		for len(hours) > 0 && len(closing.Blocks) < mostRows && !isFull(&sum) {
			some := hours[0].Numbers[:min(len(hours[0].Numbers), mostRows-len(closing.Blocks))]
			q := usage.BlockQuery{AccountID: day.account, Tier: usage.Hours, From: hours[0].Start, Before: hours[0].Start + 1, First: some[0], Limit: len(some)}
			err := c.cfg.Store.UsageBlocks(ctx, q, func(b *usage.Block) error { return sum.AddDay(b.Body) })
			if err != nil {
				return err
			}
			closing.Blocks = append(closing.Blocks, some...)
			if hours[0].Numbers = hours[0].Numbers[len(some):]; len(hours[0].Numbers) == 0 {
				hours = hours[1:]
			}
		}
		if err := c.finish(ctx, closing, &sum); err != nil {
			return err
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
