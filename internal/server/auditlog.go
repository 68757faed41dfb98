package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// VerifyAudit verifies the hash chain of an account's sealed audit blocks, directly in
// the store, which a server may be using. head is the digest of a block that was kept
// elsewhere, or nil; the chain must contain it. If the chain is broken, the error is an
// *audit.Problem. The report also describes the records that are not sealed yet.
func VerifyAudit(ctx context.Context, settings *config.Config, log *slog.Logger, accountName string, head *audit.Digest) (report audit.Report, err error) {
	err = auditBlocks(ctx, settings, log, accountName, func(chain audit.Chain, open audit.Waiting, blocks iter.Seq2[*audit.Block, error]) (err error) {
		report, err = audit.Verify(chain, blocks, head)
		report.Unsealed = &open
		return err
	})
	return report, err
}

// ExportAudit writes the chain of an account's sealed audit blocks to w, in the format
// that audit.VerifyExport reads.
func ExportAudit(ctx context.Context, settings *config.Config, log *slog.Logger, accountName string, w io.Writer) error {
	return auditBlocks(ctx, settings, log, accountName, func(chain audit.Chain, _ audit.Waiting, blocks iter.Seq2[*audit.Block, error]) error {
		return audit.Export(w, chain, blocks)
	})
}

// blocksAtOnce is the number of blocks read from the store at a time.
const blocksAtOnce = 16

// auditBlocks calls f with the chain of an account, which is given by name or identifier, and
// its blocks, in order, and what is not sealed, all read in one transaction.
func auditBlocks(ctx context.Context, settings *config.Config, log *slog.Logger, accountName string, f func(chain audit.Chain, open audit.Waiting, blocks iter.Seq2[*audit.Block, error]) error) (err error) {
	db, err := openRecords(ctx, settings, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(ctx, func(tx control.ReadTx) error {
		find := tx.AccountByName
		if _, ok := id.Parse(id.Account, accountName); ok { // of a deleted account, too
			find = tx.Account
		}
		account, err := find(ctx, accountName)
		if err != nil {
			return err
		}
		chain, err := tx.AuditChain(ctx, account.ID)
		if err != nil {
			return err
		}
		open, err := tx.AuditWaiting(ctx, account.ID)
		if err != nil {
			return err
		}
		return f(chain, open, blocksOf(ctx, tx, chain))
	})
}

// openRecords opens the store without the secret key, which its records do not need.
func openRecords(ctx context.Context, settings *config.Config, log *slog.Logger) (store.Engine, error) {
	if settings.Shared() {
		return openPostgres(ctx, settings, "", log)
	}
	if found, err := hasDatabase(settings); err == nil && !found {
		return nil, fmt.Errorf("no store in %s: set another --data-dir", settings.DataDir)
	}
	return sqlite.Open(ctx, sqlite.Config{Path: settings.DatabaseFile(), Log: log, BackupBeforeMigrate: settings.BackupBeforeMigrate})
}

func blocksOf(ctx context.Context, tx control.ReadTx, chain audit.Chain) iter.Seq2[*audit.Block, error] {
	return func(yield func(*audit.Block, error) bool) {
		for after := chain.Base.Number; ; {
			some, err := tx.AuditBlocks(ctx, chain.AccountID, after, blocksAtOnce)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, b := range some {
				if !yield(b, nil) {
					return
				}
				after = b.Number
			}
			if len(some) == 0 {
				return
			}
		}
	}
}
