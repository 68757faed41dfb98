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

// busy is a store under load: in each transaction that seals, a period passes and requests end.
type busy struct {
	*sqlite.DB
	t       *testing.T
	writer  *Writer
	now     time.Time
	account [16]byte // of the requests
	ends    int      // number of requests that end in each transaction
	held    []int    // bytes not in the store at the start of each transaction
}

func (b *busy) SealAudit(ctx context.Context, s *audit.Seal) error {
	b.held = append(b.held, b.writer.Held())
	b.now = b.now.Add(b.writer.cfg.Period)
	b.take(b.account, b.ends)
	return b.DB.SealAudit(ctx, s)
}

// take gives the writer n requests of an account.
func (b *busy) take(accountID [16]byte, n int) {
	batch := make([]accesslog.Entry, n)
	for i := range batch {
		e := &batch[i]
		e.Account, e.Start, e.Request, e.Authenticated, e.Path = accountID, b.now.UnixMicro(), id.NewFast(), true, "/"
	}
	b.writer.Take(batch)
}

// head returns the number of an account's last block.
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

// newBusy returns a busy store with its writer, and its accounts.
func newBusy(t *testing.T, accounts int) (*busy, [][16]byte) {
	t.Helper()
	db := sqlitetest.Open(t, sqlite.Config{})
	b := &busy{DB: db, t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var all [][16]byte
	for range accounts {
		a := account.Account{ID: id.New(id.Account), Tier: account.Scale, CreatedAt: b.now}
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

// Guarantee: records taken while blocks are sealed wait for at most one transaction, however
// many blocks and accounts there are, so that a kill loses no more of them than usual.
func TestRecordsWaitForOneSealingTransaction(t *testing.T) {
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
					t.Errorf("%d bytes were not in the store before transaction %d, want 0", held, n)
				}
			}
			if want := max(test.accounts, test.blocks/sealBlocks+1); len(b.held) != want {
				t.Errorf("got %d transactions, want %d", len(b.held), want)
			}
			for _, a := range accounts {
				if got := b.head(a); got != int64(test.blocks) {
					t.Errorf("got %d sealed blocks, want %d", got, test.blocks)
				}
			}
		})
	}
}

// Guarantee: several blocks are sealed in one transaction, which waits for the disk once, but
// the open end does not become expensive to read.
func TestBlocksAreSealedTogether(t *testing.T) {
	b, accounts := newBusy(t, 1)
	a, start := accounts[0], b.now
	for step, want := range []struct {
		records int
		head    int64
	}{
		{audit.RunRecords, 1}, {audit.RunRecords, 1}, {audit.RunRecords, 1}, // the second and third wait
		{2 * audit.RunRecords, 5}, // too much to wait
		{audit.RunRecords, 5}, {0, 5}, {0, 5}, {0, 5}, {0, 6},
	} {
		b.now = start.Add(time.Duration(step) * b.writer.cfg.Period)
		b.take(a, want.records)
		b.writer.write(t.Context())
		if got := b.head(a); got != want.head {
			t.Errorf("after write %d the head is %d, want %d", step, got, want.head)
		}
	}
}
