package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/store/rows"
)

// streamColumns selects what the data plane needs of each key.
const streamColumns = `SELECT id, account_id, digest, level::bigint, word::bigint, resource, more_scopes, gateway_id, owner, owner_id, plan_id, bucket_id, rate_limit, expires_at,
	coalesce(revoked_at, (SELECT at FROM ended_gateways WHERE id = keys.gateway_id)), ended, concurrency, imported, addresses
	FROM keys WHERE (phase < 2 OR revoked_at >= $1)` + rows.Counted

// checkEvery is the number of keys after which a stream checks its context.
const checkEvery = 1024

// EachKey implements snapshot.KeySource. It reads one state of the store. All calls of f get the
// same Key, and equal accounts, gateways and scopes share their memory. f must not wait for another
// reading call of the store.
func (db *DB) EachKey(ctx context.Context, revokedSince time.Time, f func(*apikey.Key) error) error {
	return db.eachKey(ctx, revokedSince, f, nil)
}

// EachReadableKey implements snapshot.PositionLog. One statement reads all keys; only if the server cannot read one of
// them, it reads them by their identifiers.
func (db *DB) EachReadableKey(ctx context.Context, revokedSince time.Time, f func(*apikey.Key) error, bad func(keyID string, err error)) error {
	err := db.eachKey(ctx, revokedSince, f, bad)
	if err == nil || !isDamage(err) {
		return err
	}
	for after := ""; ; {
		ids, err := readOn(ctx, db, db.changes, func(t *readTx) ([]string, error) {
			return t.Texts(ctx, "read keys", `SELECT id FROM keys WHERE id > $2 AND (phase < 2 OR revoked_at >= $1) ORDER BY id LIMIT 1000`, rows.Micros(revokedSince), after)
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		var failed error // of f
		err = db.KeysByID(ctx, ids, func(keyID string, k *apikey.Key, unreadable error) {
			switch {
			case unreadable != nil:
				bad(keyID, unreadable)
			case failed == nil:
				failed = f(k)
			}
		})
		if err := cmp.Or(failed, err); err != nil {
			return err
		}
		after = ids[len(ids)-1]
	}
}

// eachKey is EachKey. If bad is not nil, it is called for a row that cannot be decoded, which is an error
// otherwise.
func (db *DB) eachKey(ctx context.Context, revokedSince time.Time, f func(*apikey.Key) error, bad func(keyID string, err error)) error {
	return db.stream(ctx, db.changes, func(t *readTx) error {
		var (
			d      rows.KeyDecoder
			n      int
			failed error // error of f or ctx, not of the driver
		)
		err := t.Query(ctx, "stream keys", streamColumns, []any{rows.Micros(revokedSince)}, func(r *rows.Row) error {
			if n++; n%checkEvery == 0 && ctx.Err() != nil {
				failed = ctx.Err()
				return failed
			}
			row := streamedRow(resultOf(r).RawValues())
			k, err := d.Decode(row)
			switch {
			case err != nil && bad != nil:
				bad(row.ID, err)
				return nil
			case err != nil:
				return err
			}
			failed = f(k)
			return failed
		})
		if failed != nil {
			return failed
		}
		return err
	})
}

// streamedRow returns the columns of streamColumns. The driver asks for all types that they have in
// the binary format: a number is eight bytes.
func streamedRow(v [][]byte) rows.KeyRow {
	return rows.KeyRow{
		ID: string(v[0]), Account: string(v[1]), Digest: v[2], Level: number(v[3]), Word: number(v[4]), Resource: string(v[5]), More: string(v[6]),
		Gateway: string(v[7]), Owner: string(v[8]), OwnerID: string(v[9]), Plan: string(v[10]), Bucket: string(v[11]), Rate: string(v[12]),
		Expires: number(v[13]), Revoked: number(v[14]), HasExpiry: v[13] != nil, IsRevoked: v[14] != nil, Ended: len(v[15]) == 1 && v[15][0] != 0,
		Concurrency: number(v[16]), Imported: len(v[17]) == 1 && v[17][0] != 0, Addresses: string(v[18]),
	}
}

func number(b []byte) int64 {
	if len(b) != 8 {
		return 0 // NULL
	}
	return int64(binary.BigEndian.Uint64(b))
}
