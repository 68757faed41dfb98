package writer

import (
	"context"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

// busy is a store under load: while it seals, a period passes and requests end.
type busy struct {
	*sqlite.DB
	t       *testing.T
	writer  *Writer
	now     time.Time
	account [16]byte // whose request
	ends    int      // requests that end meanwhile
	held    []int    // bytes not in the store, when it was called
}

func (b *busy) SealAudit(ctx context.Context, s *audit.Seal) error {
	b.held = append(b.held, b.writer.Held())
	b.now = b.now.Add(b.writer.cfg.Period)
	b.take(b.account, b.ends)
	return b.DB.SealAudit(ctx, s)
}

// give is n requests of an account.
func (b *busy) take(accountID [16]byte, n int) {
	batch := make([]accesslog.Entry, n)
	for i := range batch {
		e := &batch[i]
		e.Account, e.Start, e.Request, e.Authenticated, e.Path = accountID, b.now.UnixMicro(), id.NewFast(), true, "/"
	}
	b.writer.Take(batch)
}

// head is the number of an account's last block.
func (b *busy) head(accountID [16]byte) (number int64) {
	err := b.View(b.t.Context(), func(tx control.ReadTx) error {
		chain, err := tx.AuditChain(b.t.Context(), id.Format(id.Account, accountID))
		number = chain.Head.Number
		return err
	})
	if err != nil {
		b.t.Error(err)
	}
	return number
}

func newBusy(t *testing.T, accounts int) (*busy, [][16]byte) {
	t.Helper()
	db := sqlitetest.Open(t, sqlite.Config{})
	b := &busy{DB: db, t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var all [][16]byte
	for range accounts {
		a := account.Account{ID: id.New(id.Account), Plan: account.Scale, CreatedAt: b.now}
		a.Name = a.ID
		if err := db.Update(t.Context(), func(tx control.Tx) error { return tx.InsertAccount(t.Context(), &a) }); err != nil {
			t.Fatal(err)
		}
		u, _ := id.Parse(id.Account, a.ID)
		all = append(all, u)
	}
	b.account = all[0]
	var err error
	b.writer, err = New(Config{Store: b, Keeper: db, OperatorID: id.Format(id.Account, all[0]), Now: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	return b, all
}

// Guarantee: however many blocks there are to be sealed, of however many accounts,
// what is taken meanwhile waits for one transaction at most, so that the end of the
// process takes no more with it than else.
func TestSealingKeepsNobodyWaiting(t *testing.T) {
	for name, test := range map[string]struct{ accounts, blocks int }{
		"many accounts": {5, 1},
		"many blocks":   {1, 3*sealBlocks + 1},
	} {
		t.Run(name, func(t *testing.T) {
			b, accounts := newBusy(t, test.accounts)
			b.ends = 1
			for _, a := range accounts {
				b.take(a, test.blocks*audit.RunRecords)
			}
			b.writer.write(t.Context())
			for n, held := range b.held {
				if held != 0 {
					t.Errorf("transaction %d: %d bytes wait for another", n, held)
				}
			}
			if want := max(test.accounts, test.blocks/sealBlocks+1); len(b.held) != want {
				t.Errorf("%d transactions, want %d", len(b.held), want)
			}
			for _, a := range accounts {
				if got := b.head(a); got != int64(test.blocks) {
					t.Errorf("%d blocks were sealed, want %d", got, test.blocks)
				}
			}
		})
	}
}

// Guarantee: the disk is waited for once for several blocks, but not so long that
// the open end becomes expensive to read.
func TestSealingRests(t *testing.T) {
	b, accounts := newBusy(t, 1)
	a := accounts[0]
	for step, want := range []struct {
		records int
		head    int64
	}{
		{audit.RunRecords, 1}, {audit.RunRecords, 1}, {audit.RunRecords, 1}, // waits
		{2 * audit.RunRecords, 5}, // is too much
		{audit.RunRecords, 5}, {0, 5}, {0, 5}, {0, 5}, {0, 6},
	} {
		b.take(a, want.records)
		b.writer.write(t.Context())
		if got := b.head(a); got != want.head {
			t.Errorf("after write %d the head is %d, want %d", step, got, want.head)
		}
	}
}
