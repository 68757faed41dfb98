package sqlite

import (
	"context"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/traffic"
)

// Guarantee: changes, sealed blocks, ranges of daily caps and management records are synced to the
// disk before they are acknowledged. Only records of traffic are not synced, whatever was written
// before them.
func TestAcknowledgedChangesAreSynced(t *testing.T) {
	ctx := t.Context()
	db := fresh(t)
	a := account.Account{ID: id.New(id.Account), Name: "a", Tier: account.Scale, CreatedAt: time.Now()}
	insert := func(ctx context.Context) error {
		a.ID, a.Name = id.New(id.Account), id.New("name")
		return db.Update(ctx, func(tx control.Tx) error { return tx.InsertAccount(ctx, &a) })
	}
	if err := insert(ctx); err != nil {
		t.Fatal(err)
	}
	table := audit.Table{}
	table.AddEvent(&audit.Event{Time: time.Now().UnixMicro(), Request: id.NewFast(), Outcome: audit.Success, Method: "GET", Path: "/"})
	chunks, err := table.Chunks(a.ID)
	if err != nil {
		t.Fatal(err)
	}
	appendChunks := func(ctx context.Context) error { return db.AppendAuditChunks(ctx, accesslog.BatchID{}, chunks, nil) }
	for name, test := range map[string]struct {
		write func(ctx context.Context) error
		want  int // value of PRAGMA synchronous: 2 is FULL, 1 is NORMAL
	}{
		"change":       {insert, 2},
		"daily caps":   {func(ctx context.Context) error { return reserveNothing(ctx, db) }, 2},
		"audit chunks": {appendChunks, 1},
		"audit chunks and a management record": {func(ctx context.Context) error {
			return db.AppendAuditChunks(ctx, accesslog.BatchID{}, chunks, []*audit.Record{audit.NewGap(a.ID, 1, time.Now(), time.Now())})
		}, 2},
		"audit blocks": {func(ctx context.Context) error { return db.SealAudit(ctx, &audit.Seal{AccountID: a.ID}) }, 2},
		"traffic": {func(ctx context.Context) error {
			return db.AppendTraffic(ctx, accesslog.BatchID{}, []traffic.Chunk{{AccountID: a.ID, Tier: traffic.Minutes, Start: 60, Body: []byte{0}}})
		}, 1},
	} {
		for _, before := range []func(context.Context) error{insert, appendChunks} {
			if err := before(ctx); err != nil {
				t.Fatal(err)
			}
			if err := test.write(ctx); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			c, err := db.writer.take(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var got int
			err = c.sql.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&got)
			db.writer.give(c)
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("%s: got synchronous=%d, want %d", name, got, test.want)
			}
		}
	}
}

// reserveNothing writes as much as a reservation of daily caps does at least.
func reserveNothing(ctx context.Context, db *DB) error {
	_, err := db.ReserveDaily(ctx, "node", 1, nil)
	return err
}
