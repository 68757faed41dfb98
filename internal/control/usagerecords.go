package control

import (
	"context"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/usage"
)

// usageSource returns where usage records are read.
func (s *Service) usageSource(actor *Actor) (usage.Source, error) {
	if err := actor.check(); err != nil {
		return nil, err
	}
	if s.cfg.Sources.Usage == nil {
		return nil, fault.New(fault.Unavailable, "this process has no data plane: send the call to the server")
	}
	return s.cfg.Sources.Usage, nil
}

// UsageRecords lists final usage records, in the order in which they became final. Page.After is the text of a
// usage.Position; another text, and a position behind all records, are fault.ValidationFailed with the field cursor.
func (s *Service) UsageRecords(ctx context.Context, actor *Actor, f usage.Filter, p Page) (list []usage.Record, err error) {
	from, ok := usage.ParsePosition(p.After)
	if !ok {
		return nil, fault.Invalid("cursor", "is not a position in this list")
	}
	source, err := s.usageSource(actor)
	if err != nil {
		return nil, err
	}
	end, err := usage.Ends(ctx, source, actor.Account.ID, f.Tier)
	if err != nil {
		return nil, err
	}
	if from.Block > end.Block {
		return nil, errBeyondEnd()
	}
	_, err = usage.Final(ctx, source, actor.Account.ID, f, from, end, func(r *usage.Record) bool {
		list = append(list, *r)
		return len(list) < p.Limit
	})
	return list, err
}

// OpenUsage lists open usage records, complete up to now, in an order that does not change. Page.After is a
// usage.Record.Cursor.
func (s *Service) OpenUsage(ctx context.Context, actor *Actor, f usage.Filter, p Page) (list []usage.Record, err error) {
	open, err := s.allOpenUsage(ctx, actor, f)
	if err != nil {
		return nil, err
	}
	err = open.After(p.After, func(r *usage.Record) bool {
		list = append(list, *r)
		return len(list) < p.Limit
	})
	return list, err
}

func (s *Service) allOpenUsage(ctx context.Context, actor *Actor, f usage.Filter) (*usage.Opened, error) {
	if err := s.complete(ctx, actor, s.cfg.Sources.Traffic); err != nil {
		return nil, err
	}
	source, err := s.usageSource(actor)
	if err != nil {
		return nil, err
	}
	return usage.Open(ctx, source, actor.Account.ID, f)
}

// UsageExport is the usage records of an account that a filter selects, as they were when the export began.
type UsageExport struct {
	source   usage.Source
	account  string
	filter   usage.Filter
	from, to usage.Position
	open     *usage.Opened // instead of final ones
	after    string        // cursor of the last open record that was read
}

// ExportUsage begins an export of final records, from a position, which is "" for the first. A text that is no position, and
// a position behind all records, are fault.ValidationFailed with the field cursor.
func (s *Service) ExportUsage(ctx context.Context, actor *Actor, f usage.Filter, after string) (*UsageExport, error) {
	from, ok := usage.ParsePosition(after)
	if !ok {
		return nil, fault.Invalid("cursor", "is not a position in this list")
	}
	source, err := s.usageSource(actor)
	if err != nil {
		return nil, err
	}
	end, err := usage.Ends(ctx, source, actor.Account.ID, f.Tier)
	if err == nil && from.Block > end.Block {
		err = errBeyondEnd()
	}
	return &UsageExport{source: source, account: actor.Account.ID, filter: f, from: from, to: end}, err
}

// errBeyondEnd is the error of a position behind all records.
func errBeyondEnd() error {
	return fault.Invalid("cursor", "is of records that this server does not have, as after a restore of a backup: start again without cursor, with since=the time of the backup")
}

// ExportOpenUsage begins an export of open records.
func (s *Service) ExportOpenUsage(ctx context.Context, actor *Actor, f usage.Filter) (*UsageExport, error) {
	open, err := s.allOpenUsage(ctx, actor, f)
	return &UsageExport{open: open}, err
}

// End returns the position from which a later export has only what this one lacks.
func (e *UsageExport) End() string { return e.to.String() }

// blocksAtOnce is how many block numbers one UsageExport.Read reads at most, however few of their records match.
const blocksAtOnce = 32

// Read calls yield for each of the next records, which it must not keep, and reports whether there are others. It reads
// about most records, and returns early where the filter selects few.
func (e *UsageExport) Read(ctx context.Context, most int, yield func(*usage.Record)) (more bool, err error) {
	read := 0
	if e.open != nil {
		err := e.open.After(e.after, func(r *usage.Record) bool {
			yield(r)
			e.after = r.Cursor()
			read++
			return read < most
		})
		return err == nil && read == most, err
	}
	to := e.to
	if to.Block-e.from.Block > blocksAtOnce {
		to = usage.Position{Block: e.from.Block + blocksAtOnce}
	}
	e.from, err = usage.Final(ctx, e.source, e.account, e.filter, e.from, to, func(r *usage.Record) bool {
		yield(r)
		read++
		return read < most
	})
	return err == nil && e.from.Block < e.to.Block, err
}
