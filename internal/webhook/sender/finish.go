package sender

import (
	"context"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/webhook"
)

// StrandedAtOnce is how many waiting deliveries fail in the transaction that disables their
// endpoint. Maintenance fails the others (control.DeliveryStore.FailStranded).
const StrandedAtOnce = 100

// FinishTx is what Finish needs of a transaction of the store.
type FinishTx interface {
	// EndLeases records results: the attempt, the delivery's state and NextAttemptAt, and
	// the end of its lease. It returns the endpoint of each result, or "" if the lease has passed
	// to another claim or the delivery was deleted.
	EndLeases(ctx context.Context, results []Result) (endpoints []string, err error)
	// LockWebhooks returns the given endpoints that exist. No other transaction changes them before
	// this one ends. It locks them in the order of the identifiers, which are sorted, so that no
	// two transactions wait for each other.
	LockWebhooks(ctx context.Context, webhookIDs []string) ([]webhook.Webhook, error)
	UpdateWebhook(ctx context.Context, w *webhook.Webhook) error
	AppendAudit(ctx context.Context, r *audit.Record) error
	// FailWaiting fails up to limit waiting deliveries of an endpoint that are not leased at
	// now, for the given reason, and returns how many.
	FailWaiting(ctx context.Context, webhookID, reason string, now time.Time, limit int) (int, error)
}

// Finish does what Queue.FinishDeliveries says, within a transaction. Every store shares it.
func Finish(ctx context.Context, t FinishTx, results []Result) (late int, err error) {
	endpoints, err := t.EndLeases(ctx, results)
	if err != nil {
		return 0, err
	}
	ids := slices.DeleteFunc(slices.Sorted(slices.Values(endpoints)), func(id string) bool { return id == "" })
	late = len(results) - len(ids)
	f := finish{FinishTx: t}
	if f.endpoints, err = t.LockWebhooks(ctx, slices.Compact(ids)); err != nil {
		return 0, err
	}
	f.before = slices.Clone(f.endpoints)
	f.observe(results, endpoints)
	return late, f.store(ctx)
}

// finish is one batch of results.
type finish struct {
	FinishTx
	endpoints []webhook.Webhook // that exist, after the results
	before    []webhook.Webhook // the same, before the results
	changed   []bool            // for each of endpoints
	last      time.Time         // the end of the latest attempt
}

// observe takes the results into the endpoints' health.
func (f *finish) observe(results []Result, endpoints []string) {
	f.changed = make([]bool, len(f.endpoints))
	for i := range results {
		if endpoints[i] == "" {
			continue
		}
		a := &results[i].Attempt
		if ended := a.Ended(); ended.After(f.last) {
			f.last = ended
		}
		n := slices.IndexFunc(f.endpoints, func(w webhook.Webhook) bool { return w.ID == endpoints[i] })
		if n < 0 {
			continue
		}
		w := &f.endpoints[n]
		changed := w.Observe(a)
		f.changed[n] = w.Pause(results[i].PausedUntil) || changed || f.changed[n]
	}
}

// store writes the health of the endpoints. If an endpoint was disabled, it writes an audit
// record and fails the endpoint's waiting deliveries.
func (f *finish) store(ctx context.Context) error {
	for n := range f.endpoints {
		if !f.changed[n] {
			continue
		}
		w, before := &f.endpoints[n], &f.before[n]
		w.FailingSince = w.FailingSince.Truncate(time.Microsecond)
		disabled := before.State == webhook.Active && w.State == webhook.Disabled
		if disabled {
			w.Version++
		}
		if err := f.UpdateWebhook(ctx, w); err != nil {
			return err
		}
		if !disabled {
			continue
		}
		err := f.AppendAudit(ctx, &audit.Record{
			AccountID: w.AccountID, Time: f.last, Kind: audit.Management, Outcome: audit.Success, Action: audit.WebhookDisable, Target: w.ID,
			Diff: audit.Diff{"state": {string(before.State), string(w.State)}, "disabled_reason": {nil, w.DisabledReason}},
		})
		if err != nil {
			return err
		}
		if _, err := f.FailWaiting(ctx, w.ID, w.NotSent(), f.last, StrandedAtOnce); err != nil {
			return err
		}
	}
	return nil
}
