package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/ratelimit"
)

// streamColumns selects what the data plane needs of each key.
const streamColumns = `SELECT id, account_id, digest, level, word, resource, more_scopes, gateway_id, owner, bucket_id, rate_limit, expires_at, revoked_at
	FROM keys NOT INDEXED WHERE phase < 2 OR revoked_at >= ?`

const streamWidth = 13

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
			rows, err := c.QueryContext(context.Background(), streamColumns, []driver.NamedValue{{Ordinal: 1, Value: micros(revokedSince)}})
			if err != nil {
				return err
			}
			failed, err = eachRow(ctx, rows, f)
			return errors.Join(err, rows.Close())
		})
		if failed != nil {
			return failed
		}
		return translate("stream keys", err)
	})
}

// eachRow calls f for each row. failed is an error of f or ctx, err one of the driver.
func eachRow(ctx context.Context, rows driver.Rows, f func(*apikey.Key) error) (failed, err error) {
	var (
		d      keyDecoder
		values [streamWidth]driver.Value
	)
	for n := 1; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err(), nil
		}
		if err := rows.Next(values[:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return nil, err
		}
		if err := d.decode(&values); err != nil {
			return nil, err
		}
		if err := f(&d.key); err != nil {
			return err, nil
		}
	}
}

// keyDecoder decodes rows into its key.
type keyDecoder struct {
	key    apikey.Key
	shared map[string]string // accounts and gateways
	scopes map[scopeRow]apikey.Scopes
	rate   string // encoded key.RateLimit
}

func (d *keyDecoder) decode(v *[streamWidth]driver.Value) error {
	k := &d.key
	id, _ := v[0].(string)
	digest, _ := v[2].([]byte)
	if id == "" || len(digest) != len(k.Digest) {
		return fmt.Errorf("the row of key %q is damaged", id)
	}
	k.ID, k.AccountID, k.Digest = id, d.share(v[1]), apikey.Digest(digest)
	k.Level = levelOf(number(v[3]))
	k.Scope = d.scope(scopeRow{number(v[4]), text(v[5]), text(v[6])})
	k.GatewayID, k.Owner = d.share(v[7]), text(v[8])
	if k.BucketID = id; v[9] != nil {
		k.BucketID = text(v[9])
	}
	if rate := text(v[10]); rate != d.rate {
		var err error
		if k.RateLimit, err = ratelimit.ParseKeyLimit(rate); err != nil {
			return fmt.Errorf("stored rate of key %s: %w", id, err)
		}
		d.rate = rate
	}
	if k.ExpiresAt = (time.Time{}); v[11] != nil {
		k.ExpiresAt = instant(number(v[11]))
	}
	if k.RevokedAt = (time.Time{}); v[12] != nil {
		k.RevokedAt = instant(number(v[12]))
	}
	return nil
}

// scopeRow is the columns that hold the scopes of a key.
type scopeRow struct {
	word           int64
	resource, more string
}

// scope returns the scopes of a row, which all equal rows share.
func (d *keyDecoder) scope(row scopeRow) apikey.Scopes {
	if one, ok := d.scopes[row]; ok {
		return one
	}
	if d.scopes == nil {
		d.scopes = map[scopeRow]apikey.Scopes{}
	}
	one := scopesOf(row.word, row.resource, row.more)
	d.scopes[row] = one
	return one
}

// share returns v as a string that all equal values share.
func (d *keyDecoder) share(v driver.Value) string {
	s := text(v)
	if s == "" {
		return ""
	}
	if one, ok := d.shared[s]; ok {
		return one
	}
	if d.shared == nil {
		d.shared = map[string]string{}
	}
	d.shared[s] = s
	return s
}

func text(v driver.Value) string {
	s, _ := v.(string)
	return s
}

func number(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}
