package server

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/requestlog"
	requestwriter "github.com/keygate/keygate/internal/requestlog/writer"
	"github.com/keygate/keygate/internal/retention"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/traffic/meter"
)

// kept is a store with records of every sort, and everything that removes old records. The clock of
// the synctest bubble is the true time; the wall clock is wrong by a time that the test sets.
type kept struct {
	t       *testing.T
	db      *sqlite.DB
	wrong   atomic.Int64 // a time.Duration
	account [16]byte
	audit   *auditwriter.Writer
	meter   *meter.Meter
	log     *requestwriter.Writer
}

func (k *kept) now() time.Time { return time.Now().Add(time.Duration(k.wrong.Load())) }

func (k *kept) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func newKept(t *testing.T) *kept {
	t.Helper()
	k := &kept{t: t}
	var err error
	k.db, err = sqlite.Open(t.Context(), sqlite.Config{Path: sqlitetest.Path(t), Now: k.now})
	k.must(err)
	a := account.Account{ID: id.New(id.Account), Name: "a", Tier: account.Starter, CreatedAt: k.now()}
	k.must(k.db.Update(t.Context(), func(tx control.Tx) error { return tx.InsertAccount(t.Context(), &a) }))
	k.account, _ = id.Parse(id.Account, a.ID)
	clock, err := retention.New(retention.Config{Store: k.db, Now: k.now})
	k.must(err)
	k.must(clock.Start(t.Context()))
	t.Cleanup(func() { k.must(clock.Stop(context.Background())) })
	k.audit, err = auditwriter.New(auditwriter.Config{Store: k.db, Keeper: k.db, OperatorID: a.ID, Now: k.now, Retention: clock.Now})
	k.must(err)
	k.meter, err = meter.New(meter.Config{Store: k.db, Now: k.now, Retention: clock.Now})
	k.must(err)
	k.log, err = requestwriter.New(requestwriter.Config{Store: k.db, Now: k.now, Retention: clock.Now})
	k.must(err)
	return k
}

// request records a refused request with the time of the wall clock.
func (k *kept) request() {
	e := accesslog.Entry{Path: "/"}
	e.Start, e.Request, e.Authenticated, e.Account, e.Result, e.Status = k.now().UnixMicro(), id.NewFastAt(k.now().UnixMilli()), true, k.account, accesslog.KeyInvalid, 401
	batch := []accesslog.Entry{e}
	k.audit.Take(batch)
	k.meter.Take(batch)
	k.log.Take(batch)
}

// maintain seals, merges and removes as the server does in time.
func (k *kept) maintain() {
	k.t.Helper()
	ctx := k.t.Context()
	k.must(k.audit.Seal(ctx))
	k.must(k.meter.Sync(ctx))
	k.must(k.log.Sync(ctx))
	k.must(k.audit.Maintain(ctx))
	k.must(k.meter.Maintain(ctx))
	k.must(k.log.Trim(ctx))
}

// counts returns how many records each log has.
func (k *kept) counts() (audited, logged int, counted int64) {
	k.t.Helper()
	ctx, accountID := k.t.Context(), id.Format(id.Account, k.account)
	k.must(k.db.View(ctx, func(tx control.ReadTx) error {
		blocks, err := tx.AuditBlocks(ctx, accountID, 0, 1000)
		for _, b := range blocks {
			audited += b.Records
		}
		return err
	}))
	list, err := k.db.RequestRecords(ctx, accountID, requestlog.Filter{}, 1000, "")
	k.must(err)
	rows, err := traffic.Report(ctx, k.db, accountID, traffic.Query{Since: time.Now().Add(-24 * time.Hour), Until: time.Now().Add(time.Hour), Interval: traffic.Hour}, time.Now())
	k.must(err)
	for _, r := range rows {
		counted += r.Requests
	}
	return audited, len(list), counted
}

// Guarantee: a wall clock that is 800 days ahead for less than an hour removes nothing from the
// audit log, the request log and the traffic counts, although records are written meanwhile.
func TestClockAheadRemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t)
		defer func() { k.must(k.db.Close()) }()
		for range 3 {
			k.request()
			<-time.After(25 * time.Minute)
		}
		k.maintain()
		for _, ahead := range []time.Duration{4 * time.Second, 59 * time.Minute} {
			k.wrong.Store(int64(800 * 24 * time.Hour))
			for range 2 {
				k.request()
				k.maintain()
				<-time.After(ahead / 2)
			}
			k.maintain()
			k.wrong.Store(0)
			<-time.After(time.Hour) // the readings of that time are among the readings of the last hour
			k.maintain()
		}
		if audited, logged, counted := k.counts(); audited != 7 || logged != 7 || counted != 3 {
			t.Errorf("%d audit records, %d requests and a count of %d are left; want 7, 7, and the 3 of the true time", audited, logged, counted)
		}
	})
}
