package rows

import (
	"context"
	"math"
	"strings"

	"github.com/keygate/keygate/internal/control"
)

// The queries that find revisions to remove. Each reads an index. Revisions that they find are
// removed, until they find none.
const (
	GoneGatewayQuery = `SELECT gateway_id, newest FROM revision_counts INDEXED BY revision_counts_gone WHERE gone = true LIMIT 1`
	LongHistoryQuery = `SELECT gateway_id, newest FROM revision_counts INDEXED BY revision_counts_oldest WHERE revisions > $1 AND oldest_at < $2 LIMIT 1`
	FullAccountQuery = `SELECT a.account_id, a.revision_bytes FROM account_counts a INDEXED BY account_counts_revisions
		WHERE a.revision_bytes > $1 AND EXISTS (SELECT 1 FROM revision_counts c WHERE c.account_id = a.account_id AND c.older_bytes > 0) LIMIT 1`
	// The two gateways of an account whose older revisions take the most.
	LargestHistoriesQuery = `SELECT gateway_id, newest, older_bytes FROM revision_counts INDEXED BY revision_counts_older
		WHERE account_id = $1 AND older_bytes > 0 ORDER BY older_bytes DESC, gateway_id DESC LIMIT 2`
	OldestRevisionsQuery = `SELECT number, created_at, bytes FROM revisions WHERE gateway_id = $1 AND number <= $2 ORDER BY number LIMIT $3`
)

// HasOldRevisions implements control.RevisionReader.
func (t *Reader) HasOldRevisions(ctx context.Context, k control.KeptRevisions) (has bool, err error) {
	err = t.Query(ctx, "look for old revisions", `SELECT EXISTS (`+GoneGatewayQuery+`) OR EXISTS (`+LongHistoryQuery+`) OR EXISTS (`+strings.Replace(FullAccountQuery, "$1", "$3", 1)+`)`,
		[]any{k.Newest, Micros(k.Since), k.AccountBytes}, func(r *Row) error { return r.Scan(&has) })
	return has, err
}

// TrimRevisions implements control.Trimmer. The parts of the revisions that it removes are left to
// TrimTables.
func (t *Writer) TrimRevisions(ctx context.Context, k control.KeptRevisions, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, t.Ready(ctx)
	}
	r := revisionTrimmer{t, k}
	for _, step := range []func(ctx context.Context, limit int) (removed int, err error){r.gone, r.long, r.full} {
		for {
			n, err := step(ctx, limit)
			if err != nil {
				return false, err
			}
			if n == 0 {
				break
			}
			if limit -= n; limit <= 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

// history is the revisions of a gateway.
type history struct {
	gatewayID  string // "" for none
	newest     int64  // number of the newest
	olderBytes int64  // of all but the newest
}

// oldRevision is a revision that may be removed.
type oldRevision struct{ number, createdAt, bytes int64 }

type revisionTrimmer struct {
	*Writer
	keep control.KeptRevisions
}

// history returns the history that a query finds.
func (t *revisionTrimmer) history(ctx context.Context, what, query string, args ...any) (h history, err error) {
	err = t.Query(ctx, what, query, args, func(r *Row) error { return r.Scan(&h.gatewayID, &h.newest) })
	return h, err
}

// gone removes revisions of a deleted gateway.
func (t *revisionTrimmer) gone(ctx context.Context, limit int) (int, error) {
	h, err := t.history(ctx, "find revisions of a deleted gateway", GoneGatewayQuery)
	if err != nil || h.gatewayID == "" {
		return 0, err
	}
	return t.oldest(ctx, h.gatewayID, h.newest, limit, func(oldRevision) bool { return true })
}

// long removes revisions, of one gateway, that are older than they must be kept and not among the
// newest.
func (t *revisionTrimmer) long(ctx context.Context, limit int) (int, error) {
	before := Micros(t.keep.Since)
	h, err := t.history(ctx, "find a gateway with old revisions", LongHistoryQuery, t.keep.Newest, before)
	if err != nil || h.gatewayID == "" {
		return 0, err
	}
	return t.oldest(ctx, h.gatewayID, h.newest-int64(t.keep.Newest), limit, func(r oldRevision) bool { return r.createdAt < before })
}

// full removes revisions of an account that has too many bytes of them: the oldest of the gateway
// whose older revisions take the most, until the older revisions of another gateway take as much.
func (t *revisionTrimmer) full(ctx context.Context, limit int) (int, error) {
	var accountID string
	var bytes int64
	err := t.Query(ctx, "find an account with too many revisions", FullAccountQuery, []any{t.keep.AccountBytes}, func(r *Row) error { return r.Scan(&accountID, &bytes) })
	if err != nil || accountID == "" {
		return 0, err
	}
	largest, err := readAll(ctx, t.read, "find the gateway with the most revisions", LargestHistoriesQuery, []any{accountID}, func(r *Row) (h history, err error) {
		err = r.Scan(&h.gatewayID, &h.newest, &h.olderBytes)
		return h, err
	})
	if err != nil || len(largest) == 0 {
		return 0, err
	}
	excess, lead := bytes-t.keep.AccountBytes, int64(math.MaxInt64)
	if len(largest) > 1 {
		lead = largest[0].olderBytes - largest[1].olderBytes
	}
	removed := int64(0)
	return t.oldest(ctx, largest[0].gatewayID, largest[0].newest-1, limit, func(r oldRevision) bool {
		if removed > 0 && (removed >= excess || removed >= lead) {
			return false
		}
		removed += r.bytes
		return true
	})
}

// oldest removes revisions of a gateway with numbers up to last, the oldest first, as long as remove
// says so, and at most limit of them.
func (t *revisionTrimmer) oldest(ctx context.Context, gatewayID string, last int64, limit int, remove func(oldRevision) bool) (int, error) {
	list, err := readAll(ctx, t.read, "find the oldest revisions", OldestRevisionsQuery, []any{gatewayID, last, limit}, func(row *Row) (r oldRevision, err error) {
		err = row.Scan(&r.number, &r.createdAt, &r.bytes)
		return r, err
	})
	if err != nil {
		return 0, err
	}
	n := 0
	for n < len(list) && remove(list[n]) {
		n++
	}
	if n == 0 {
		return 0, nil
	}
	return n, t.Queue(ctx, "remove revisions", `DELETE FROM revisions WHERE gateway_id = $1 AND number <= $2`, gatewayID, list[n-1].number)
}
