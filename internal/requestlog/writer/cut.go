package writer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/requestlog"
)

// cuts is what was removed early and is not logged yet.
type cuts struct {
	mu  sync.Mutex
	all map[string]*accountCut // of accounts of which something was removed within the last hour
}

// accountCut is what was removed early of an account since it was last logged.
type accountCut struct {
	logged  time.Time
	records int
	newest  time.Time
}

// keepBound looks at the size of the log when it has grown enough, after records were written. For each batch that was written, at
// most two are removed, so that a write takes a bounded time, and so that the log does not grow while it is too large.
func (r *Writer) keepBound(ctx context.Context, records []requestlog.Record) {
	for i := range records {
		r.grown += records[i].Size()
	}
	r.batchesGrown++
	if r.cfg.MaxBytes <= 0 || r.grown < r.cfg.MaxBytes/growth {
		return
	}
	steps := 2 * r.batchesGrown
	r.grown, r.batchesGrown = 0, 0
	if err := r.cut(ctx, steps); err != nil && ctx.Err() == nil {
		r.cfg.Log.Warn("removing requests beyond --requests-max-bytes failed; it is retried", "error", err)
	}
}

// cut removes records beyond the maximum size, in at most the given number of transactions. The accounts that have most lose their
// oldest records.
func (r *Writer) cut(ctx context.Context, steps int) error {
	if r.cfg.MaxBytes <= 0 {
		return nil
	}
	sizes, err := r.cfg.Store.RequestBytes(ctx)
	if err != nil {
		return fmt.Errorf("measure the request log: %w", err)
	}
	defer r.logCuts()
	for _, most := range requestlog.Excess(sizes, r.cfg.MaxBytes) {
		for more := true; more; steps-- {
			if steps == 0 {
				return nil
			}
			cut, err := r.cfg.Store.CutRequests(ctx, most, trimBatch)
			if err != nil {
				return fmt.Errorf("remove the oldest requests: %w", err)
			}
			r.noteCut(most.AccountID, cut)
			more = cut.More
		}
	}
	return nil
}

// noteCut counts removed records of an account.
func (r *Writer) noteCut(account string, cut requestlog.Cut) {
	if cut.Records == 0 {
		return
	}
	r.removedEarly.Add(uint64(cut.Records))
	r.cuts.mu.Lock()
	defer r.cuts.mu.Unlock()
	if r.cuts.all == nil {
		r.cuts.all = map[string]*accountCut{}
	}
	a := r.cuts.all[account]
	if a == nil {
		a = &accountCut{}
		r.cuts.all[account] = a
	}
	a.records += cut.Records
	if cut.Newest.After(a.newest) {
		a.newest = cut.Newest
	}
}

// logCuts logs what was removed, at most once an hour for each account.
func (r *Writer) logCuts() {
	now := r.cfg.Now()
	r.cuts.mu.Lock()
	defer r.cuts.mu.Unlock()
	for account, a := range r.cuts.all {
		switch {
		case now.Sub(a.logged).Abs() < cutLogPeriod:
		case a.records == 0:
			delete(r.cuts.all, account)
		default:
			r.cfg.Log.Warn("the request log is larger than --requests-max-bytes; the oldest requests of an account that has most were removed early",
				"account", account, "requests", a.records, "up_to", a.newest, "max_bytes", r.cfg.MaxBytes)
			*a = accountCut{logged: now}
		}
	}
}
