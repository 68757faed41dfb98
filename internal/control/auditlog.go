package control

import (
	"context"

	"github.com/keygate/keygate/internal/audit"
)

// AuditLog lists the account's audit records, newest first. Page.After is a
// Record.Cursor.
func (s *Service) AuditLog(ctx context.Context, c *Actor, f audit.Filter, p Page) ([]audit.Record, error) {
	if s.cfg.AuditSync != nil && p.After == "" {
		s.sync(ctx, s.cfg.AuditSync)
	}
	return search(ctx, s, c, func(tx ReadTx) ([]audit.Record, error) { return tx.AuditLog(ctx, c.Account.ID, f, p) })
}

// AuditExport is the records of an account's audit log that match a filter, as the log was when
// the export began. It reads them step by step, each step in a short transaction of its own, so
// that a slow reader holds up nothing.
type AuditExport struct {
	service *Service
	account string
	scan    *audit.Scan
}

// ExportAudit begins an export of the records that f matches, oldest first. It has the records
// of every request that had ended, and of every change that was made, before the call.
func (s *Service) ExportAudit(ctx context.Context, c *Actor, f audit.Filter) (*AuditExport, error) {
	if s.cfg.AuditSync != nil {
		s.sync(ctx, s.cfg.AuditSync)
	}
	scan, err := search(ctx, s, c, func(tx ReadTx) (*audit.Scan, error) {
		return s.codec.Scan(ctx, tx.AuditSource(c.Account.ID), c.Account.ID, f)
	})
	if err != nil {
		return nil, err
	}
	return &AuditExport{service: s, account: c.Account.ID, scan: scan}, nil
}

// Read reads the next step, or returns nil at the end. A step has at most about a megabyte of
// compressed records.
func (e *AuditExport) Read(ctx context.Context) (*audit.ScanStep, error) {
	return readIn(ctx, e.service.cfg.Store.Search, func(tx ReadTx) (*audit.ScanStep, error) { return e.scan.Read(ctx, tx.AuditSource(e.account)) })
}

// AuditHead returns the head of the account's chain.
func (s *Service) AuditHead(ctx context.Context, c *Actor) (audit.Head, error) {
	chain, err := s.AuditChain(ctx, c)
	return chain.Head, err
}

// AuditChain describes the account's chain of blocks.
func (s *Service) AuditChain(ctx context.Context, c *Actor) (audit.Chain, error) {
	return read(ctx, s, c, func(tx ReadTx) (audit.Chain, error) { return tx.AuditChain(ctx, c.Account.ID) })
}

// AuditBlocks returns up to limit blocks of the account's chain in order, starting with the
// one that follows the number after.
func (s *Service) AuditBlocks(ctx context.Context, c *Actor, after int64, limit int) ([]*audit.Block, error) {
	return read(ctx, s, c, func(tx ReadTx) ([]*audit.Block, error) { return tx.AuditBlocks(ctx, c.Account.ID, after, limit) })
}
