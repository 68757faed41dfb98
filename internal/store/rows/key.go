package rows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/ratelimit"
)

// StoredKeyColumns selects keys as they are stored. KeyColumns selects them as they count: a key that is restricted to
// an ended gateway is revoked since the gateway's end, and has the version that it gets when this is written.
const (
	StoredKeyColumns = keyStart + `revoked_at` + keyMiddle + `version` + keyEnd
	KeyColumns       = keyStart + `coalesce(revoked_at, (SELECT at FROM ended_gateways WHERE id = keys.gateway_id)) AS revoked_at` + keyMiddle +
		`version + CASE WHEN revoked_at IS NULL AND EXISTS (SELECT 1 FROM ended_gateways WHERE id = keys.gateway_id) THEN 1 ELSE 0 END AS version` + keyEnd

	keyStart = `SELECT id, account_id, digest, prefix, level, word, resource, more_scopes, gateway_id, owner, owner_id, plan_id, bucket_id, rate_limit, concurrency,
	expires_at, last_used_at, created_at, `
	keyMiddle = `, expiry_told, rotated_from, rotated_to, `
	keyEnd    = `, name, metadata, ended, holder_root, holder_rotated_at, imported, addresses FROM keys `
)

// ScanKey returns the key of a row.
func ScanKey(r *Row) (apikey.Key, error) {
	var (
		k apikey.Key
		c struct { // one allocation
			digest                               []byte
			level, word, created                 int64
			resource, more                       sql.NullString
			gatewayID, owner, ownerID, planID    sql.NullString
			bucket, rate, metadata, addresses    sql.NullString
			rotatedFrom, rotatedTo, holderRoot   sql.NullString
			expires, used, revokedAt, expiryTold sql.NullInt64
			holderRotated, concurrency           sql.NullInt64
		}
	)
	err := r.Scan(&k.ID, &k.AccountID, &c.digest, &k.Prefix, &c.level, &c.word, &c.resource, &c.more, &c.gatewayID, &c.owner, &c.ownerID, &c.planID, &c.bucket, &c.rate, &c.concurrency,
		&c.expires, &c.used, &c.created, &c.revokedAt, &c.expiryTold, &c.rotatedFrom, &c.rotatedTo, &k.Version, &k.Name, &c.metadata, &k.Ended, &c.holderRoot, &c.holderRotated, &k.Imported, &c.addresses)
	if err != nil {
		return k, err
	}
	if copy(k.Digest[:], c.digest) != len(k.Digest) {
		return k, fmt.Errorf("digest of key %s has %d bytes", k.ID, len(c.digest))
	}
	k.Level, k.Scope = levelOf(c.level), scopesOf(c.word, c.resource.String, c.more.String)
	k.GatewayID, k.Owner, k.OwnerID, k.PlanID = c.gatewayID.String, c.owner.String, c.ownerID.String, c.planID.String
	k.Concurrency = c.concurrency.Int64
	k.RotatedFrom, k.RotatedTo = c.rotatedFrom.String, c.rotatedTo.String
	k.HolderRoot, k.HolderRotatedAt = c.holderRoot.String, MaybeInstant(c.holderRotated)
	if k.BucketID = k.ID; c.bucket.Valid {
		k.BucketID = c.bucket.String
	}
	k.CreatedAt, k.ExpiresAt, k.LastUsedAt = Instant(c.created), MaybeInstant(c.expires), MaybeInstant(c.used)
	k.RevokedAt, k.ExpiryNotified = MaybeInstant(c.revokedAt), MaybeInstant(c.expiryTold)
	if k.RateLimit, err = ratelimit.ParseKeyLimit(c.rate.String); err != nil {
		return k, fmt.Errorf("stored rate of key %s: %w", k.ID, err)
	}
	return k, errors.Join(fromJSON(c.metadata, &k.Metadata), fromJSON(c.addresses, &k.Addresses))
}

// SelectKeys reads the keys that the rest of the query selects.
func (t *Reader) SelectKeys(ctx context.Context, rest string, args ...any) ([]apikey.Key, error) {
	return t.keysOf(ctx, KeyColumns, rest, args...)
}

func (t *Reader) keysOf(ctx context.Context, columns, rest string, args ...any) ([]apikey.Key, error) {
	return readAll(ctx, t, "read keys", columns+rest, args, ScanKey)
}

// SelectKey reads the only key that the rest of the query selects.
func (t *Reader) SelectKey(ctx context.Context, rest string, args ...any) (*apikey.Key, error) {
	return readOne(ctx, t, "key", KeyColumns+rest, args, ScanKey)
}

// Key implements control.KeyReader.
func (t *Reader) Key(ctx context.Context, accountID, keyID string) (*apikey.Key, error) {
	return t.SelectKey(ctx, `WHERE id = $1 AND account_id = $2`+Counted, keyID, accountID)
}

// KeyByDigest implements control.KeyReader.
func (t *Reader) KeyByDigest(ctx context.Context, d apikey.Digest) (*apikey.Key, error) {
	return t.SelectKey(ctx, `WHERE digest = $1`+Counted, d[:])
}

// HaveDigests implements control.KeyReader.
func (t *Reader) HaveDigests(ctx context.Context, accountID string, digests []apikey.Digest) (map[apikey.Digest]bool, error) {
	have, values := map[apikey.Digest]bool{}, make([][]byte, len(digests))
	for i := range digests {
		values[i] = digests[i][:]
	}
	err := inLists(values, func(list string, args []any) error {
		return t.Query(ctx, "look digests up", `SELECT account_id, digest FROM keys WHERE digest `+list, args, func(r *Row) error {
			var of string
			var d []byte
			if err := r.Scan(&of, &d); err != nil || of != accountID {
				return err
			}
			if len(d) != len(apikey.Digest{}) {
				return fmt.Errorf("a stored digest has %d bytes", len(d))
			}
			have[apikey.Digest(d)] = true
			return nil
		})
	})
	return have, err
}

// KeysOfBucket implements control.KeyReader.
func (t *Reader) KeysOfBucket(ctx context.Context, accountID, bucketID string, since time.Time, limit int) ([]apikey.Key, error) {
	return t.SelectKeys(ctx, inBucket+` ORDER BY id LIMIT $4`, bucketID, Micros(since), accountID, Limit(limit))
}

// CountKeysOfBucket implements control.KeyReader.
func (t *Reader) CountKeysOfBucket(ctx context.Context, accountID, bucketID string, since time.Time, limit int) (n int, err error) {
	err = t.QueryRow(ctx, "number of keys of a bucket", `SELECT count(*) FROM (SELECT n FROM keys `+inBucket+` LIMIT $4) AS chain`,
		[]any{bucketID, Micros(since), accountID, Limit(limit)}, func(r *Row) error { return r.Scan(&n) })
	return n, err
}

// inBucket selects the keys of KeysOfBucket, for the bucket $1, the time $2 and the account $3. The account is within the list:
// beside it, SQLite would read all keys of the account in search of those of the list.
const inBucket = `WHERE n IN (
		SELECT n FROM keys WHERE id = $1 AND account_id = $3 AND bucket_id IS NULL
		UNION ALL SELECT n FROM keys INDEXED BY keys_chain WHERE bucket_id = $1 AND account_id = $3 AND phase < 2 AND ended = false AND expires_at IS NULL
		UNION ALL SELECT n FROM keys INDEXED BY keys_chain WHERE bucket_id = $1 AND account_id = $3 AND phase < 2 AND ended = false AND expires_at >= $2
	) AND phase < 2 AND ended = false AND (expires_at IS NULL OR expires_at >= $2)` + NotEnded

// KeysByHolders implements control.KeyReader.
func (t *Reader) KeysByHolders(ctx context.Context, accountID, bucketID, root string, after time.Time, limit int) ([]apikey.Key, error) {
	return t.SelectKeys(ctx, `INDEXED BY keys_chain WHERE bucket_id = $1 AND phase < 2 AND ended = false AND account_id = $2 AND holder_root = $3 AND created_at > $4
		ORDER BY created_at DESC, id DESC LIMIT $5`, bucketID, accountID, root, Micros(after), Limit(limit))
}

// SharedBuckets implements control.KeyReader.
func (t *Reader) SharedBuckets(ctx context.Context, accountID string) (map[string]string, error) {
	shared := map[string]string{}
	err := t.Query(ctx, "read shared buckets", `SELECT id, bucket_id FROM keys INDEXED BY keys_bucket WHERE bucket_id IS NOT NULL AND account_id = $1`,
		[]any{accountID}, func(r *Row) error {
			var key, bucket string
			err := r.Scan(&key, &bucket)
			shared[key] = bucket
			return err
		})
	return shared, err
}

// KeysToNotify implements control.KeyReader.
func (t *Reader) KeysToNotify(ctx context.Context, now time.Time, limit int) ([]apikey.Key, error) {
	return t.SelectKeys(ctx, `INDEXED BY keys_expiry WHERE phase = 0 AND phase < 2 AND expires_at <= $1`+NotEnded+Counted+` ORDER BY expires_at, id LIMIT $2`,
		Micros(now), Limit(limit))
}

// keyValues returns the values that InsertKey and UpdateKey write, in their order.
func keyValues(k *apikey.Key) ([]any, error) {
	metadata, err := maybeJSON(k.Metadata, len(k.Metadata) == 0)
	if err != nil {
		return nil, err
	}
	addresses, err := maybeJSON(k.Addresses, k.Addresses.IsZero())
	if err != nil {
		return nil, err
	}
	var first apikey.Scope
	var more apikey.Scopes
	if len(k.Scope) > 0 {
		first, more = k.Scope[0], k.Scope[1:]
	}
	return []any{LevelNumber(k.Level), phaseOf(k), int64(first.Word), maybeText(first.Resource), maybeText(more.String()), maybeText(k.GatewayID), maybeText(k.Owner), maybeText(k.OwnerID), maybeText(k.PlanID),
		keyBucket(k), maybeText(k.RateLimit.String()), MaybeMicros(k.ExpiresAt), MaybeMicros(k.RevokedAt), MaybeMicros(k.ExpiryNotified),
		maybeText(k.RotatedFrom), maybeText(k.RotatedTo), k.Version, k.Name, metadata, k.Ended, maybeText(k.HolderRoot), MaybeMicros(k.HolderRotatedAt), maybeCount(k.Concurrency), addresses}, nil
}

// InsertKey implements control.KeyStore.
func (t *Writer) InsertKey(ctx context.Context, k *apikey.Key) error {
	return t.insertKey(ctx, k, "")
}

// insertKey stores a key of an import in pieces, "" for none.
func (t *Writer) insertKey(ctx context.Context, k *apikey.Key, importID string) error {
	values, err := keyValues(k)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert key", `INSERT INTO keys (level, phase, word, resource, more_scopes, gateway_id, owner, owner_id, plan_id,
		bucket_id, rate_limit, expires_at, revoked_at, expiry_told, rotated_from, rotated_to, version, name, metadata, ended,
		holder_root, holder_rotated_at, concurrency, addresses, id, account_id, digest, prefix, created_at, last_used_at, imported, import_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32)`,
		append(values, k.ID, k.AccountID, k.Digest[:], k.Prefix, Micros(k.CreatedAt), MaybeMicros(k.LastUsedAt), k.Imported, maybeText(importID))...)
}

// UpdateKey implements control.KeyStore.
func (t *Writer) UpdateKey(ctx context.Context, k *apikey.Key) error {
	values, err := keyValues(k)
	if err != nil {
		return err
	}
	return t.QueueOne(ctx, "update key", "key", `UPDATE keys SET level = $1, phase = $2, word = $3, resource = $4, more_scopes = $5, gateway_id = $6, owner = $7, owner_id = $8,
		plan_id = $9, bucket_id = $10, rate_limit = $11, expires_at = $12, revoked_at = $13, expiry_told = $14, rotated_from = $15, rotated_to = $16,
		version = $17, name = $18, metadata = $19, ended = $20, holder_root = $21, holder_rotated_at = $22, concurrency = $23, addresses = $24 WHERE id = $25 AND account_id = $26`,
		append(values, k.ID, k.AccountID)...)
}

// TouchKeys implements control.KeyStore.
func (t *Writer) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	ids := slices.Sorted(maps.Keys(used)) // in order, because neighbours share pages
	times := make([]int64, len(ids))
	for i, id := range ids {
		times[i] = Micros(used[id])
	}
	return t.QueueEach(ctx, "touch keys", `UPDATE keys AS k SET last_used_at = u.at FROM unnest($1::text[], $2::bigint[]) AS u (id, at)
		WHERE k.id = u.id AND (k.last_used_at IS NULL OR k.last_used_at < u.at)`, ids, times)
}
