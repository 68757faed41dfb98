package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/audit"
)

// Syncer brings what it holds in memory into the store.
type Syncer interface {
	// Sync returns when everything that was told before the call is in the store.
	Sync(ctx context.Context) error
}

// syncWithin is how long a list waits for what is still in memory. A store that
// takes nothing can still be read.
const syncWithin = 2 * time.Second

// AuditLog lists the account's audit records, newest first. Page.After is a
// Record.Cursor.
func (s *Service) AuditLog(ctx context.Context, c *Caller, f audit.Filter, p Page) ([]audit.Record, error) {
	if s.cfg.AuditSync != nil && p.After == "" {
		s.sync(ctx, s.cfg.AuditSync)
	}
	return read(ctx, s, func(tx ReadTx) ([]audit.Record, error) { return tx.AuditLog(ctx, c.Account.ID, f, p) })
}

// sync waits for what is in memory, as long as makes sense.
func (s *Service) sync(ctx context.Context, from Syncer) {
	ctx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	if err := from.Sync(ctx); err != nil {
		s.cfg.Log.WarnContext(ctx, "the audit log is shown without the latest records: they could not be written yet", "error", err)
	}
}

// AuditHead returns the end of the account's chain.
func (s *Service) AuditHead(ctx context.Context, c *Caller) (audit.Head, error) {
	chain, err := s.AuditChain(ctx, c)
	return chain.Head, err
}

// AuditChain tells what the account's chain of blocks holds.
func (s *Service) AuditChain(ctx context.Context, c *Caller) (audit.Chain, error) {
	return read(ctx, s, func(tx ReadTx) (audit.Chain, error) { return tx.AuditChain(ctx, c.Account.ID) })
}

// AuditBlocks returns up to limit blocks of the account's chain after the one
// with the number after, in order.
func (s *Service) AuditBlocks(ctx context.Context, c *Caller, after int64, limit int) ([]*audit.Block, error) {
	return read(ctx, s, func(tx ReadTx) ([]*audit.Block, error) { return tx.AuditBlocks(ctx, c.Account.ID, after, limit) })
}
