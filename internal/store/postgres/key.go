package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/stored"
)

// storedKeyColumns selects keys as they are stored. keyColumns selects them as they are: a key that is restricted to a
// gateway which has ended is revoked since then, and has the version that it gets when that is written.
const (
	storedKeyColumns = keyStart + `revoked_at` + keyMiddle + `version` + keyEnd
	keyColumns       = keyStart + `coalesce(revoked_at, (SELECT at FROM ended_gateways WHERE id = keys.gateway_id)) AS revoked_at` + keyMiddle +
		`version + CASE WHEN revoked_at IS NULL AND EXISTS (SELECT 1 FROM ended_gateways WHERE id = keys.gateway_id) THEN 1 ELSE 0 END AS version` + keyEnd

	keyStart = `SELECT id, account_id, digest, prefix, level, word, resource, more_scopes, gateway_id, owner, bucket_id, rate_limit,
	expires_at, last_used_at, created_at, `
	keyMiddle = `, expiry_told, rotated_from, rotated_to, `
	keyEnd    = `, name, metadata, ended FROM keys `
)

func scanKey(r rows.Row) (apikey.Key, error) {
	var (
		k                                      apikey.Key
		digest                                 []byte
		level, word, created                   int64
		resource, more                         sql.NullString
		gatewayID, owner, bucket               sql.NullString
		rate, rotatedFrom, rotatedTo, metadata sql.NullString
		expires, used, revokedAt, expiryTold   sql.NullInt64
	)
	err := r.Scan(&k.ID, &k.AccountID, &digest, &k.Prefix, &level, &word, &resource, &more, &gatewayID, &owner, &bucket, &rate,
		&expires, &used, &created, &revokedAt, &expiryTold, &rotatedFrom, &rotatedTo, &k.Version, &k.Name, &metadata, &k.Ended)
	if err != nil {
		return k, err
	}
	if copy(k.Digest[:], digest) != len(k.Digest) {
		return k, fmt.Errorf("digest of key %s has %d bytes", k.ID, len(digest))
	}
	k.Level, k.Scope = stored.LevelOf(level), stored.ScopesOf(word, resource.String, more.String)
	k.GatewayID, k.Owner, k.RotatedFrom, k.RotatedTo = gatewayID.String, owner.String, rotatedFrom.String, rotatedTo.String
	if k.BucketID = k.ID; bucket.Valid {
		k.BucketID = bucket.String
	}
	k.CreatedAt, k.ExpiresAt, k.LastUsedAt = rows.Instant(created), rows.MaybeInstant(expires), rows.MaybeInstant(used)
	k.RevokedAt, k.ExpiryNotified = rows.MaybeInstant(revokedAt), rows.MaybeInstant(expiryTold)
	if k.RateLimit, err = ratelimit.ParseKeyLimit(rate.String); err != nil {
		return k, fmt.Errorf("stored rate of key %s: %w", k.ID, err)
	}
	err = fromJSON(metadata, &k.Metadata)
	return k, err
}

// keys reads the keys that the rest of the query selects.
func (t *readTx) keys(ctx context.Context, rest string, args ...any) ([]apikey.Key, error) {
	return t.keysOf(ctx, keyColumns, rest, args...)
}

func (t *readTx) keysOf(ctx context.Context, columns, rest string, args ...any) ([]apikey.Key, error) {
	var list []apikey.Key
	err := t.Query(ctx, "read keys", columns+rest, args, func(r rows.Row) error {
		k, err := scanKey(r)
		list = append(list, k)
		return err
	})
	return list, err
}

func (t *readTx) key(ctx context.Context, rest string, args ...any) (*apikey.Key, error) {
	var k apikey.Key
	err := t.QueryRow(ctx, "key", keyColumns+rest, args, func(r rows.Row) (err error) {
		k, err = scanKey(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &k, nil
}

// Key implements control.KeyReader.
func (t *readTx) Key(ctx context.Context, accountID, keyID string) (*apikey.Key, error) {
	return t.key(ctx, `WHERE id = $1 AND account_id = $2`, keyID, accountID)
}

// KeyByDigest implements control.KeyReader.
func (t *readTx) KeyByDigest(ctx context.Context, d apikey.Digest) (*apikey.Key, error) {
	return t.key(ctx, `WHERE digest = $1`, d[:])
}

// KeysOfBucket implements control.KeyReader.
func (t *readTx) KeysOfBucket(ctx context.Context, accountID, bucketID string, since time.Time, limit int) ([]apikey.Key, error) {
	return t.keys(ctx, `WHERE n IN (
			SELECT n FROM keys WHERE id = $1 AND bucket_id IS NULL
			UNION ALL SELECT n FROM keys WHERE bucket_id = $1 AND phase < 2 AND NOT ended AND expires_at IS NULL
			UNION ALL SELECT n FROM keys WHERE bucket_id = $1 AND phase < 2 AND NOT ended AND expires_at >= $2
		) AND account_id = $3 AND phase < 2 AND NOT ended AND (expires_at IS NULL OR expires_at >= $2)`+notEnded+` ORDER BY id LIMIT $4`,
		bucketID, rows.Micros(since), accountID, rows.Limit(limit))
}

// SharedBuckets implements control.KeyReader.
func (t *readTx) SharedBuckets(ctx context.Context, accountID string) (map[string]string, error) {
	shared := map[string]string{}
	err := t.Query(ctx, "read shared buckets", `SELECT id, bucket_id FROM keys WHERE bucket_id IS NOT NULL AND account_id = $1`,
		[]any{accountID}, func(r rows.Row) error {
			var key, bucket string
			err := r.Scan(&key, &bucket)
			shared[key] = bucket
			return err
		})
	return shared, err
}

// KeysToNotify implements control.KeyReader.
func (t *readTx) KeysToNotify(ctx context.Context, now time.Time, limit int) ([]apikey.Key, error) {
	return t.keys(ctx, `WHERE phase = 0 AND phase < 2 AND expires_at <= $1`+notEnded+` ORDER BY expires_at, id LIMIT $2`,
		rows.Micros(now), rows.Limit(limit))
}

// keyValues returns the values that InsertKey and UpdateKey write, in their order.
func keyValues(k *apikey.Key) ([]any, error) {
	metadata, err := maybeJSON(k.Metadata, len(k.Metadata) == 0)
	if err != nil {
		return nil, err
	}
	var first apikey.Scope
	var more apikey.Scopes
	if len(k.Scope) > 0 {
		first, more = k.Scope[0], k.Scope[1:]
	}
	return []any{stored.LevelNumber(k.Level), stored.PhaseOf(k), int64(first.Word), maybeText(first.Resource), maybeText(more.String()), maybeText(k.GatewayID), maybeText(k.Owner),
		stored.KeyBucket(k), maybeText(k.RateLimit.String()), rows.MaybeMicros(k.ExpiresAt), rows.MaybeMicros(k.RevokedAt), rows.MaybeMicros(k.ExpiryNotified),
		maybeText(k.RotatedFrom), maybeText(k.RotatedTo), k.Version, k.Name, metadata, k.Ended}, nil
}

// InsertKey implements control.KeyStore.
func (t *tx) InsertKey(ctx context.Context, k *apikey.Key) error {
	values, err := keyValues(k)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert key", `INSERT INTO keys (level, phase, word, resource, more_scopes, gateway_id, owner,
		bucket_id, rate_limit, expires_at, revoked_at, expiry_told, rotated_from, rotated_to, version, name, metadata, ended,
		id, account_id, digest, prefix, created_at, last_used_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)`,
		append(values, k.ID, k.AccountID, k.Digest[:], k.Prefix, rows.Micros(k.CreatedAt), rows.MaybeMicros(k.LastUsedAt))...)
}

// UpdateKey implements control.KeyStore.
func (t *tx) UpdateKey(ctx context.Context, k *apikey.Key) error {
	values, err := keyValues(k)
	if err != nil {
		return err
	}
	return t.QueueOne(ctx, "update key", "key", `UPDATE keys SET level = $1, phase = $2, word = $3, resource = $4, more_scopes = $5, gateway_id = $6, owner = $7,
		bucket_id = $8, rate_limit = $9, expires_at = $10, revoked_at = $11, expiry_told = $12, rotated_from = $13, rotated_to = $14,
		version = $15, name = $16, metadata = $17, ended = $18 WHERE id = $19 AND account_id = $20`,
		append(values, k.ID, k.AccountID)...)
}

// TouchKeys implements control.KeyStore.
func (t *tx) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	ids := slices.Sorted(maps.Keys(used)) // in order, because neighbours share pages
	times := make([]int64, len(ids))
	for i, id := range ids {
		times[i] = rows.Micros(used[id])
	}
	return t.Queue(ctx, "touch keys", `UPDATE keys k SET last_used_at = u.at FROM unnest($1::text[], $2::bigint[]) AS u (id, at)
		WHERE k.id = u.id AND (k.last_used_at IS NULL OR k.last_used_at < u.at)`, ids, times)
}
