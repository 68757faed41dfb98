package sqlite

import (
	"context"
	"database/sql"
	"math"

	"github.com/keygate/keygate/internal/control"
)

// inlineBytes is how many bytes of revisions that an earlier version stored in their rows one
// transaction removes.
const inlineBytes = 1 << 20

// The queries that find revisions to remove. Each reads an index. What they find is removed until they
// find nothing.
const (
	goneGateway = `SELECT gateway_id, newest FROM revision_counts INDEXED BY revision_counts_gone WHERE gone = 1 LIMIT 1`
	longHistory = `SELECT gateway_id, newest FROM revision_counts INDEXED BY revision_counts_oldest WHERE revisions > ? AND oldest_at < ? LIMIT 1`
	fullAccount = `SELECT a.account_id, a.revision_bytes FROM account_counts a INDEXED BY account_counts_revisions
		WHERE a.revision_bytes > ? AND EXISTS (SELECT 1 FROM revision_counts c WHERE c.account_id = a.account_id AND c.older_bytes > 0) LIMIT 1`
	// The two gateways of an account whose older revisions take the most.
	largestHistories = `SELECT gateway_id, newest, older_bytes FROM revision_counts INDEXED BY revision_counts_older
		WHERE account_id = ? AND older_bytes > 0 ORDER BY older_bytes DESC, gateway_id DESC LIMIT 2`
	oldestRevisions = `SELECT number, created_at, bytes, length(content) + length(routes) FROM revisions WHERE gateway_id = ? AND number <= ? ORDER BY number LIMIT ?+0`
)

// HasOldRevisions implements control.RevisionReader.
func (t *readTx) HasOldRevisions(ctx context.Context, k control.KeptRevisions) (has bool, err error) {
	err = t.rows(ctx, "look for old revisions", `SELECT EXISTS (`+goneGateway+`) OR EXISTS (`+longHistory+`) OR EXISTS (`+fullAccount+`)`,
		[]any{k.Newest, micros(k.Since), k.AccountBytes}, func(r *sql.Rows) error { return r.Scan(&has) })
	return has, err
}

// TrimRevisions implements control.Trimmer. The parts of the revisions that it removes are left to
// TrimTables.
func (t *tx) TrimRevisions(ctx context.Context, k control.KeptRevisions, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, t.ready(ctx)
	}
	left := limit
	for _, step := range []func(ctx context.Context, limit int) (removed int, err error){
		t.trimGone,
		func(ctx context.Context, limit int) (int, error) { return t.trimLong(ctx, k, limit) },
		func(ctx context.Context, limit int) (int, error) { return t.trimFull(ctx, k.AccountBytes, limit) },
	} {
		for {
			n, err := step(ctx, left)
			if err != nil {
				return false, err
			}
			if n == 0 {
				break
			}
			if left -= n; left <= 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

// trimGone removes revisions of a deleted gateway.
func (t *tx) trimGone(ctx context.Context, limit int) (int, error) {
	var gatewayID string
	var newest int64
	err := t.rows(ctx, "find revisions of a deleted gateway", goneGateway, nil, func(r *sql.Rows) error { return r.Scan(&gatewayID, &newest) })
	if err != nil || gatewayID == "" {
		return 0, err
	}
	return t.trimOldest(ctx, gatewayID, newest, limit, func(oldRevision) bool { return true })
}

// trimLong removes revisions, of one gateway, that are older than k.Since and not among the newest.
func (t *tx) trimLong(ctx context.Context, k control.KeptRevisions, limit int) (int, error) {
	var gatewayID string
	var newest int64
	before := micros(k.Since)
	err := t.rows(ctx, "find a gateway with old revisions", longHistory, []any{k.Newest, before}, func(r *sql.Rows) error { return r.Scan(&gatewayID, &newest) })
	if err != nil || gatewayID == "" {
		return 0, err
	}
	return t.trimOldest(ctx, gatewayID, newest-int64(k.Newest), limit, func(r oldRevision) bool { return r.createdAt < before })
}

// trimFull removes revisions of an account that has more than the given number of bytes of them: the
// oldest of the gateway whose older revisions take the most, until those of another take as much.
func (t *tx) trimFull(ctx context.Context, most int64, limit int) (int, error) {
	var accountID string
	var excess int64
	err := t.rows(ctx, "find an account with too many revisions", fullAccount, []any{most}, func(r *sql.Rows) error { return r.Scan(&accountID, &excess) })
	if err != nil || accountID == "" {
		return 0, err
	}
	excess -= most
	type history struct {
		gatewayID     string
		newest, bytes int64
	}
	largest := make([]history, 0, 2)
	err = t.rows(ctx, "find the gateway with the most revisions", largestHistories, []any{accountID}, func(r *sql.Rows) error {
		var h history
		err := r.Scan(&h.gatewayID, &h.newest, &h.bytes)
		largest = append(largest, h)
		return err
	})
	if err != nil || len(largest) == 0 {
		return 0, err
	}
	lead := int64(math.MaxInt64)
	if len(largest) > 1 {
		lead = largest[0].bytes - largest[1].bytes
	}
	removed := int64(0)
	return t.trimOldest(ctx, largest[0].gatewayID, largest[0].newest-1, limit, func(r oldRevision) bool {
		if removed > 0 && (removed >= excess || removed >= lead) {
			return false
		}
		removed += r.bytes
		return true
	})
}

// oldRevision is a revision that may be removed.
type oldRevision struct {
	number, createdAt, bytes int64
	inline                   int64 // bytes of its row; 0 if it is in parts
}

// trimOldest removes revisions of a gateway with numbers up to last, the oldest first, as long as remove
// says so, and at most limit of them.
func (t *tx) trimOldest(ctx context.Context, gatewayID string, last int64, limit int, remove func(oldRevision) bool) (int, error) {
	n, number, inline, going := 0, int64(0), int64(0), true
	err := t.rows(ctx, "find the oldest revisions", oldestRevisions, []any{gatewayID, last, limit}, func(rows *sql.Rows) error {
		var r oldRevision
		if err := rows.Scan(&r.number, &r.createdAt, &r.bytes, &r.inline); err != nil {
			return err
		}
		inline += r.inline
		if going = going && (n == 0 || inline <= inlineBytes) && remove(r); going {
			n, number = n+1, r.number
		}
		return nil
	})
	if err != nil || n == 0 {
		return 0, err
	}
	_, err = t.exec(ctx, "remove revisions", `DELETE FROM revisions WHERE gateway_id = ? AND number <= ?`, gatewayID, number)
	return n, err
}
