package rows

import (
	"context"
	"strings"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/stored"
)

// The queries that find revisions to remove. Each reads an index. Revisions that they find are
// removed, until they find none.
const (
	goneGateway = `SELECT gateway_id, newest FROM revision_counts INDEXED BY revision_counts_gone WHERE gone = true LIMIT 1`
	longHistory = `SELECT gateway_id, newest FROM revision_counts INDEXED BY revision_counts_oldest WHERE revisions > $1 AND oldest_at < $2 LIMIT 1`
	fullAccount = `SELECT a.account_id, a.revision_bytes FROM account_counts a INDEXED BY account_counts_revisions
		WHERE a.revision_bytes > $1 AND EXISTS (SELECT 1 FROM revision_counts c WHERE c.account_id = a.account_id AND c.older_bytes > 0) LIMIT 1`
	// The two gateways of an account whose older revisions take the most.
	largestHistories = `SELECT gateway_id, newest, older_bytes FROM revision_counts INDEXED BY revision_counts_older
		WHERE account_id = $1 AND older_bytes > 0 ORDER BY older_bytes DESC, gateway_id DESC LIMIT 2`
	oldestRevisions = `SELECT number, created_at, bytes FROM revisions WHERE gateway_id = $1 AND number <= $2 ORDER BY number LIMIT $3`
)

// HasOldRevisions implements control.RevisionReader.
func (t *Reader) HasOldRevisions(ctx context.Context, k control.KeptRevisions) (has bool, err error) {
	err = t.Query(ctx, "look for old revisions", `SELECT EXISTS (`+goneGateway+`) OR EXISTS (`+longHistory+`) OR EXISTS (`+strings.Replace(fullAccount, "$1", "$3", 1)+`)`,
		[]any{k.Newest, Micros(k.Since), k.AccountBytes}, func(r *Row) error { return r.Scan(&has) })
	return has, err
}

// TrimRevisions implements control.Trimmer. The parts of the revisions that it removes are left to
// TrimTables.
func (t *Writer) TrimRevisions(ctx context.Context, k control.KeptRevisions, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, t.Ready(ctx)
	}
	return stored.TrimRevisions(ctx, t, k, limit)
}

// history returns the history that a query finds.
func (t *Writer) history(ctx context.Context, what, query string, args ...any) (h stored.History, err error) {
	err = t.Query(ctx, what, query, args, func(r *Row) error { return r.Scan(&h.GatewayID, &h.Newest) })
	return h, err
}

// GoneHistory implements stored.Histories.
func (t *Writer) GoneHistory(ctx context.Context) (stored.History, error) {
	return t.history(ctx, "find revisions of a deleted gateway", goneGateway)
}

// LongHistory implements stored.Histories.
func (t *Writer) LongHistory(ctx context.Context, newest int, before int64) (stored.History, error) {
	return t.history(ctx, "find a gateway with old revisions", longHistory, newest, before)
}

// FullAccount implements stored.Histories.
func (t *Writer) FullAccount(ctx context.Context, most int64) (accountID string, bytes int64, err error) {
	err = t.Query(ctx, "find an account with too many revisions", fullAccount, []any{most}, func(r *Row) error { return r.Scan(&accountID, &bytes) })
	return accountID, bytes, err
}

// LargestHistories implements stored.Histories.
func (t *Writer) LargestHistories(ctx context.Context, accountID string) (list []stored.History, err error) {
	err = t.Query(ctx, "find the gateway with the most revisions", largestHistories, []any{accountID}, func(r *Row) error {
		var h stored.History
		err := r.Scan(&h.GatewayID, &h.Newest, &h.OlderBytes)
		list = append(list, h)
		return err
	})
	return list, err
}

// OldestRevisions implements stored.Histories.
func (t *Writer) OldestRevisions(ctx context.Context, gatewayID string, last int64, limit int) (list []stored.OldRevision, err error) {
	err = t.Query(ctx, "find the oldest revisions", oldestRevisions, []any{gatewayID, last, limit}, func(row *Row) error {
		var r stored.OldRevision
		err := row.Scan(&r.Number, &r.CreatedAt, &r.Bytes)
		list = append(list, r)
		return err
	})
	return list, err
}

// DeleteRevisions implements stored.Histories.
func (t *Writer) DeleteRevisions(ctx context.Context, gatewayID string, last int64) error {
	return t.Queue(ctx, "remove revisions", `DELETE FROM revisions WHERE gateway_id = $1 AND number <= $2`, gatewayID, last)
}
