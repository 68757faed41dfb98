package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/keygate/keygate/internal/store/rows"
)

// KeysToIndex implements control.KeyReader.
func (t *readTx) KeysToIndex(ctx context.Context, limit int) (waiting int, err error) {
	err = t.Query(ctx, "count keys to index", `SELECT count(*) FROM (SELECT 1 FROM keys_unindexed INDEXED BY keys_to_index WHERE backdated = 0 LIMIT ?+0)`,
		[]any{rows.Limit(limit)}, func(r *rows.Row) error { return r.Scan(&waiting) })
	return waiting, err
}

// IndexKeys implements control.KeyStore.
func (t *tx) IndexKeys(ctx context.Context, limit int) (done int, err error) {
	keys, err := t.keysToIndex(ctx, min(rows.Limit(limit), rows.IndexRows))
	if err != nil {
		return 0, err
	}
	for i := range keys {
		k := &keys[i]
		if _, err := t.Exec(ctx, "index key", `INSERT OR REPLACE INTO key_terms (rowid, terms) VALUES (?, ?)`, k.N, strings.Join(k.Terms(), " ")); err != nil {
			return 0, err
		}
		if _, err := t.Exec(ctx, "mark key as indexed", `DELETE FROM keys_unindexed WHERE account_id = ? AND key_id = ?`, k.AccountID, k.ID); err != nil {
			return 0, err
		}
	}
	return len(keys), nil
}

// keysToIndex returns up to limit keys for one transaction, in the order of the index's documents,
// in which adding is cheapest.
func (t *tx) keysToIndex(ctx context.Context, limit int) (keys []rows.IndexedKey, err error) {
	size := 0
	err = t.Query(ctx, "find keys to index", `SELECT k.n, k.id, k.account_id, k.name, k.prefix, k.level, k.phase, k.gateway_id, k.owner
		FROM keys_unindexed u INDEXED BY keys_to_index CROSS JOIN keys k ON k.n = u.n WHERE u.backdated = 0 ORDER BY u.n LIMIT ?+0`,
		[]any{limit}, func(r *rows.Row) error {
			var k rows.IndexedKey
			var gateway, owner sql.NullString
			if err := r.Scan(&k.N, &k.ID, &k.AccountID, &k.Name, &k.Prefix, &k.Level, &k.Phase, &gateway, &owner); err != nil {
				return err
			}
			k.Gateway, k.Owner = gateway.String, owner.String
			if size += len(k.Name); size <= rows.IndexBytes || len(keys) == 0 {
				keys = append(keys, k)
			}
			return nil
		})
	return keys, err
}
