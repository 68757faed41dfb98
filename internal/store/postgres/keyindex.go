package postgres

import (
	"context"
	"database/sql"
	"hash/fnv"

	"github.com/keygate/keygate/internal/store/rows"
)

// termHash returns a term as it is stored. The rows of the keys distinguish terms with the same
// hash.
func termHash(term string) int64 {
	h := fnv.New64a()
	h.Write([]byte(term))
	return int64(h.Sum64())
}

func termHashes(terms []string) []int64 {
	hashes := make([]int64, len(terms))
	for i, term := range terms {
		hashes[i] = termHash(term)
	}
	return hashes
}

// KeysToIndex implements control.KeyReader.
func (t *readTx) KeysToIndex(ctx context.Context, limit int) (waiting int, err error) {
	err = t.Query(ctx, "count keys to index", `SELECT count(*) FROM (SELECT 1 FROM keys_unindexed LIMIT $1) AS waiting`,
		[]any{rows.Limit(limit)}, func(r *rows.Row) error { return r.Scan(&waiting) })
	return waiting, err
}

// IndexKeys implements control.KeyStore.
func (t *tx) IndexKeys(ctx context.Context, limit int) (done int, err error) {
	keys, err := t.keysToIndex(ctx, min(rows.Limit(limit), rows.IndexRows))
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	// The terms of all keys are one array, of which each key has a slice, because all parts of an
	// array of arrays must have the same length.
	batch, first, last := make([]int64, len(keys)), make([]int, len(keys)), make([]int, len(keys))
	var terms []int64
	for i := range keys {
		batch[i], first[i] = keys[i].N, len(terms)+1
		terms = append(terms, termHashes(keys[i].Terms())...)
		last[i] = len(terms)
	}
	err = t.Queue(ctx, "index keys", `INSERT INTO key_terms (n, terms) SELECT k.n, ($4::bigint[])[k.first:k.last]
		FROM unnest($1::bigint[], $2::int[], $3::int[]) AS k (n, first, last) ON CONFLICT (n) DO UPDATE SET terms = excluded.terms`, batch, first, last, terms)
	if err != nil {
		return 0, err
	}
	err = t.Queue(ctx, "mark keys as indexed", `DELETE FROM keys_unindexed WHERE n = ANY ($1)`, batch)
	return len(keys), err
}

// keysToIndex returns up to limit keys for one transaction.
func (t *tx) keysToIndex(ctx context.Context, limit int) (keys []rows.IndexedKey, err error) {
	size := 0
	err = t.Query(ctx, "find keys to index", `SELECT k.n, k.id, k.account_id, k.name, k.prefix, k.level, k.phase, k.gateway_id, k.owner
		FROM (SELECT n FROM keys_unindexed ORDER BY n LIMIT $1) u JOIN keys k ON k.n = u.n ORDER BY k.n`,
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
