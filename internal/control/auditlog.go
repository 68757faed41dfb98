package control

import (
	"context"

	"github.com/keygate/keygate/internal/audit"
)

// AuditLog lists the account's audit records, newest first. Page.After is a
// Record.Cursor.
func (s *Service) AuditLog(ctx context.Context, actor *Actor, f audit.Filter, p Page) ([]audit.Record, error) {
	if s.cfg.AuditSync != nil && p.After == "" {
		s.sync(ctx, s.cfg.AuditSync)
	}
	return search(ctx, s, actor, func(tx ReadTx) ([]audit.Record, error) { return tx.AuditLog(ctx, actor.Account.ID, f, p) })
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
func (s *Service) ExportAudit(ctx context.Context, actor *Actor, f audit.Filter) (*AuditExport, error) {
	if s.cfg.AuditSync != nil {
		s.sync(ctx, s.cfg.AuditSync)
	}
	scan, err := search(ctx, s, actor, func(tx ReadTx) (*audit.Scan, error) {
		return s.codec.Scan(ctx, tx.AuditSource(actor.Account.ID), actor.Account.ID, f)
	})
	if err != nil {
		return nil, err
	}
	return &AuditExport{service: s, account: actor.Account.ID, scan: scan}, nil
}

// Read reads the next step, or returns nil at the end. A step has at most about a megabyte of
// compressed records.
func (e *AuditExport) Read(ctx context.Context) (*audit.ScanStep, error) {
	return readIn(ctx, e.service.cfg.Store.Search, func(tx ReadTx) (*audit.ScanStep, error) { return e.scan.Read(ctx, tx.AuditSource(e.account)) })
}

// AuditEnd is the end of an account's audit log: the head of its chain, and what is not sealed yet.
type AuditEnd struct {
	Head audit.Head
	Open audit.Waiting
}

// AuditHead returns the end of the account's log.
func (s *Service) AuditHead(ctx context.Context, actor *Actor) (AuditEnd, error) {
	if s.cfg.AuditSync != nil {
		s.sync(ctx, s.cfg.AuditSync)
	}
	return read(ctx, s, actor, func(tx ReadTx) (end AuditEnd, err error) {
		chain, err := tx.AuditChain(ctx, actor.Account.ID)
		if err != nil {
			return end, err
		}
		end.Head = chain.Head
		end.Open, err = tx.AuditWaiting(ctx, actor.Account.ID)
		return end, err
	})
}

// AuditChain describes the account's chain of blocks.
func (s *Service) AuditChain(ctx context.Context, actor *Actor) (audit.Chain, error) {
	return read(ctx, s, actor, func(tx ReadTx) (audit.Chain, error) { return tx.AuditChain(ctx, actor.Account.ID) })
}

// AuditBlocks returns up to limit blocks of the account's chain in order, starting with the
// one that follows the number after.
func (s *Service) AuditBlocks(ctx context.Context, actor *Actor, after int64, limit int) ([]*audit.Block, error) {
	return read(ctx, s, actor, func(tx ReadTx) ([]*audit.Block, error) { return tx.AuditBlocks(ctx, actor.Account.ID, after, limit) })
}
