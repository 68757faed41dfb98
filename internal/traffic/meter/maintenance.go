package meter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/usage"
)

const (
	// settle is the number of seconds after its end at which an interval is merged or moved up:
	// most of its requests have ended then. Later requests make further chunks, which are merged
	// too.
	settle = 30
	// mergeEntries is the maximum number of entries of a merge. Larger intervals are
	// merged in parts.
	mergeEntries = 1 << 16
	backlogSets  = 5000
	trimBatch    = 200
)

// Maintain does the maintenance: it merges the chunks of past minutes, adds the chunks of past
// hours and days to the next tier, and removes chunks beyond their retention. Each step is one
// small transaction. The next call continues after a failure.
func (m *Meter) Maintain(ctx context.Context) error {
	now := m.cfg.Now().Unix() - settle
	errs := []error{m.joinUsage(ctx)}
	for _, minutes := range [...]traffic.Tier{traffic.Minutes, traffic.TargetMinutes, traffic.SubjectMinutes} {
		hours := minutes + 1
		errs = append(errs,
			m.raise(ctx, minutes, traffic.Fresh, now-minutes.Length()+1),
			m.raise(ctx, minutes, traffic.Merged, now-now%hours.Length()),
			m.raise(ctx, hours, traffic.Merged, now-now%(hours+1).Length()))
	}
	return errors.Join(append(errs, m.trim(ctx))...)
}

// errEnough stops reading chunks early.
var errEnough = errors.New("enough")

// merge identifies the interval that chunks are merged to.
type merge struct {
	account string
	part    traffic.Part
	start   int64 // of the interval that they go to
}

// raise moves the chunks of a tier and state to the next state, if their interval starts before the
// time before.
func (m *Meter) raise(ctx context.Context, t traffic.Tier, s traffic.State, before int64) error {
	for {
		list, err := m.cfg.Store.TrafficBacklog(ctx, t, s, before, backlogSets)
		if err != nil {
			return fmt.Errorf("find traffic to merge: %w", err)
		}
		var order []merge
		seqs := map[merge][]int64{}
		for _, b := range list {
			to := merge{b.AccountID, b.Part, b.Start}
			if s == traffic.Merged {
				to.start -= b.Start % (t + 1).Length()
			}
			if seqs[to] == nil {
				order = append(order, to)
			}
			seqs[to] = append(seqs[to], b.Seqs...)
		}
		var errs []error
		for _, to := range order {
			err := m.raiseOne(ctx, t, s, to, seqs[to])
			if err != nil { // a damaged chunk does not hold up the others
				errs = append(errs, fmt.Errorf("merge traffic of %s: %w", time.Unix(to.start, 0).UTC().Format(time.RFC3339), err))
			}
		}
		if len(list) < backlogSets || len(errs) > 0 {
			return errors.Join(errs...)
		}
	}
}

// sum sums chunks of one part.
type sum interface {
	AddBody(body []byte) error
	Len() int
	Chunks(traffic.Chunk) []traffic.Chunk
}

func newSum(p traffic.Part) sum {
	if p == traffic.Usage {
		return new(usageSum)
	}
	if p == traffic.Seconds || p == traffic.Methods {
		return traffic.NewArrivals()
	}
	return traffic.NewMerger(p)
}

// raiseOne merges the chunks of one interval. Fresh chunks are replaced by their sum.
// Merged chunks stay, and their sum is added to the next tier.
func (m *Meter) raiseOne(ctx context.Context, t traffic.Tier, s traffic.State, to merge, seqs []int64) error {
	made := traffic.Chunk{AccountID: to.account, Part: to.part, Tier: t, State: traffic.Merged, Start: to.start}
	switch {
	case to.part == traffic.Seconds || to.part == traffic.Methods:
		made.State = traffic.Rolled
	case s == traffic.Merged && t == to.part.In(traffic.Hours):
		made.Tier, made.State = t+1, traffic.Rolled
	case s == traffic.Merged:
		made.Tier = t + 1
	}
	if s == traffic.Fresh && len(seqs) == 1 { // a single chunk is its own sum
		err := m.cfg.Store.ReplaceTraffic(ctx, nil, seqs, made.State, nil)
		if fault.CodeOf(err) == fault.Conflict {
			return nil
		}
		return err
	}
	for len(seqs) > 0 {
		total, done := newSum(to.part), 0
		err := m.cfg.Store.TrafficChunks(ctx, seqs, func(c *traffic.Chunk) error {
			done++
			if err := total.AddBody(c.Body); err != nil {
				return fmt.Errorf("chunk %d: %w", c.Seq, err)
			}
			if total.Len() >= mergeEntries {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		if done == 0 { // they are merged already
			return nil
		}
		gone, moved := seqs[:done], []int64(nil)
		if s == traffic.Merged {
			gone, moved = nil, seqs[:done]
		}
		err = m.cfg.Store.ReplaceTraffic(ctx, gone, moved, traffic.Rolled, total.Chunks(made))
		if fault.CodeOf(err) == fault.Conflict { // another node has merged them
			return nil
		}
		if err != nil {
			return err
		}
		seqs = seqs[done:]
	}
	return nil
}

// manyChunks is the number of fresh chunks of an account and hour of part Usage from which on they are merged.
const manyChunks = 100

// joinUsage merges the chunks of part Usage where there are many of an hour, so that whoever sums them reads few. Package
// closing does the rest.
func (m *Meter) joinUsage(ctx context.Context) error {
	list, err := m.cfg.Store.TrafficBacklog(ctx, traffic.Open, traffic.Fresh, math.MaxInt64, backlogSets)
	if err != nil {
		return fmt.Errorf("find usage to merge: %w", err)
	}
	var errs []error
	for _, b := range list {
		if len(b.Seqs) < manyChunks {
			continue
		}
		to := merge{b.AccountID, b.Part, b.Start}
		if err := m.raiseOne(ctx, traffic.Open, traffic.Fresh, to, b.Seqs); err != nil { // a damaged chunk does not hold up the others
			errs = append(errs, fmt.Errorf("merge usage of %s: %w", time.Unix(to.start, 0).UTC().Format(time.RFC3339), err))
		}
	}
	return errors.Join(errs...)
}

// usageSum is a sum of chunks of part Usage.
type usageSum struct{ usage.Table }

// Chunks implements sum.
func (s *usageSum) Chunks(c traffic.Chunk) []traffic.Chunk { return usageChunks(&s.Table, c) }

// trim removes chunks beyond their retention.
func (m *Meter) trim(ctx context.Context) error {
	now := m.cfg.Retention()
	for _, kept := range []struct {
		part traffic.Part
		tier traffic.Tier
		age  time.Duration
	}{
		{traffic.Gateways, traffic.Minutes, traffic.MinutesKept},
		{traffic.Routes, traffic.Minutes, traffic.MinutesKept},
		{traffic.Keys, traffic.Minutes, traffic.MinutesKept},
		{traffic.Targets, traffic.TargetMinutes, traffic.MinutesKept},
		{traffic.Subjects, traffic.SubjectMinutes, traffic.MinutesKept},
		{traffic.Seconds, traffic.Minutes, traffic.SecondsKept},
		{traffic.Methods, traffic.Minutes, traffic.SecondsKept},
		{traffic.Gateways, traffic.Hours, traffic.HoursKept},
		{traffic.Routes, traffic.Hours, traffic.HoursKept},
		{traffic.Keys, traffic.Hours, traffic.HoursKept},
		{traffic.Targets, traffic.TargetHours, traffic.HoursKept},
		{traffic.Subjects, traffic.SubjectHours, traffic.HoursKept},
		{traffic.Gateways, traffic.Days, traffic.DaysKept},
		{traffic.Routes, traffic.Days, traffic.DaysKept},
		{traffic.Keys, traffic.Days, traffic.DaysKept},
		{traffic.Targets, traffic.TargetDays, traffic.DaysKept},
		{traffic.Subjects, traffic.SubjectDays, traffic.DaysKept},
	} {
		// Keep an interval as long as a report may start within it.
		before := now.Add(-kept.age).Unix() - 2*kept.tier.Length()
		for more := true; more; {
			var err error
			if more, err = m.cfg.Store.TrimTraffic(ctx, kept.part, kept.tier, before, trimBatch); err != nil {
				return fmt.Errorf("remove old traffic: %w", err)
			}
		}
	}
	return nil
}
