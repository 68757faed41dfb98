package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/store/rows"
)

// streamColumns selects what the data plane needs of each key.
const streamColumns = `SELECT id, account_id, digest, level, word, resource, more_scopes, gateway_id, owner, owner_id, plan_id, bucket_id, rate_limit, expires_at,
	coalesce(revoked_at, (SELECT at FROM ended_gateways WHERE id = keys.gateway_id)), ended, concurrency, imported, addresses
	FROM keys NOT INDEXED WHERE (phase < 2 OR revoked_at >= ?)` + rows.Counted

const streamWidth = 19

// checkEvery is the number of keys after which a stream checks its context.
const checkEvery = 1024

// EachKey implements snapshot.KeySource. It reads one state of the store. It uses the driver
// directly, because the conversions of database/sql would take half of the time. All calls of
// f get the same Key, and equal accounts, gateways and scopes share their memory. f must not
// wait for another reading call of the store.
func (db *DB) EachKey(ctx context.Context, revokedSince time.Time, f func(*apikey.Key) error) error {
	return view(ctx, db.source, func(t *readTx) error {
		var failed error // error of f or ctx, not of the driver
		err := t.c.sql.Raw(func(raw any) error {
			c, ok := raw.(driver.QueryerContext)
			if !ok {
				return fmt.Errorf("the driver's connection has the unexpected type %T", raw)
			}
			result, err := c.QueryContext(context.Background(), streamColumns, []driver.NamedValue{{Ordinal: 1, Value: rows.Micros(revokedSince)}})
			if err != nil {
				return err
			}
			failed, err = eachRow(ctx, result, f)
			return errors.Join(err, result.Close())
		})
		if failed != nil {
			return failed
		}
		return translate("stream keys", err)
	})
}

// eachRow calls f for each row. failed is an error of f or ctx, err an error of the driver.
func eachRow(ctx context.Context, result driver.Rows, f func(*apikey.Key) error) (failed, err error) {
	var (
		d      rows.KeyDecoder
		values [streamWidth]driver.Value
	)
	for n := 1; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err(), nil
		}
		if err := result.Next(values[:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return nil, err
		}
		k, err := d.Decode(rowOf(&values))
		if err != nil {
			return nil, err
		}
		if err := f(k); err != nil {
			return err, nil
		}
	}
}

// rowOf returns the columns of streamColumns.
func rowOf(v *[streamWidth]driver.Value) rows.KeyRow {
	digest, _ := v[2].([]byte)
	return rows.KeyRow{
		ID: text(v[0]), Account: text(v[1]), Digest: digest, Level: number(v[3]), Word: number(v[4]), Resource: text(v[5]), More: text(v[6]),
		Gateway: text(v[7]), Owner: text(v[8]), OwnerID: text(v[9]), Plan: text(v[10]), Bucket: text(v[11]), Rate: text(v[12]),
		Expires: number(v[13]), Revoked: number(v[14]), HasExpiry: v[13] != nil, IsRevoked: v[14] != nil, Ended: number(v[15]) != 0,
		Concurrency: number(v[16]), Imported: number(v[17]) != 0, Addresses: text(v[18]),
	}
}

func text(v driver.Value) string {
	s, _ := v.(string)
	return s
}

func number(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}
