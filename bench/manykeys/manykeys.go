//go:build linux

// Package manykeys fills a store with keys.
package manykeys

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// batch is the number of keys in one transaction.
const batch = 100_000

// Fill inserts keys of the account default into the database of a server that does not run. Every third one has a limit and an expiry
// and is restricted to one of ten gateways. Their strings are not known to anyone.
func Fill(ctx context.Context, database string, keys int) (err error) {
	db, err := sqlite.Open(ctx, sqlite.Config{Path: database})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	limit, err := ratelimit.ParseRate("600/min")
	if err != nil {
		return err
	}
	f := filler{now: time.Now().UTC().Truncate(time.Microsecond), limit: limit}
	if err := db.Update(ctx, func(tx control.Tx) error { return f.gateways(ctx, tx) }); err != nil {
		return err
	}
	for f.created < keys {
		if err := db.Update(ctx, func(tx control.Tx) error {
			for range min(batch, keys-f.created) {
				k := f.key()
				if err := tx.InsertKey(ctx, &k); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// Index indexes all keys for searches, as a running server does bit by bit.
func Index(ctx context.Context, database string) (err error) {
	db, err := sqlite.Open(ctx, sqlite.Config{Path: database})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for done := 1; done > 0; {
		if err := db.Update(ctx, func(tx control.Tx) (err error) {
			done, err = tx.IndexKeys(ctx, batch)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

type filler struct {
	now        time.Time
	limit      ratelimit.Rate
	accountID  string
	gatewayIDs []string
	created    int
}

func (f *filler) gateways(ctx context.Context, tx control.Tx) error {
	a, err := tx.AccountByName(ctx, account.Default)
	if err != nil {
		return err
	}
	f.accountID = a.ID
	for i := range 10 {
		g := gateway.Gateway{ID: id.New(id.Gateway), AccountID: a.ID, Name: fmt.Sprintf("bench %d", i), Upstream: gateway.Upstream{URL: "http://127.0.0.1:1"},
			Hostname: fmt.Sprintf("g%d.localhost", i), Timeout: gateway.DefaultTimeout, CreatedAt: f.now, Version: 1}
		if err := tx.InsertGateway(ctx, &g); err != nil {
			return err
		}
		f.gatewayIDs = append(f.gatewayIDs, g.ID)
	}
	return nil
}

func (f *filler) key() apikey.Key {
	k := apikey.Key{
		ID: id.New(id.Key), AccountID: f.accountID, Prefix: fmt.Sprintf("kg_%06x", f.created),
		Name: fmt.Sprintf("partner number %d", f.created), Level: apikey.GatewayLevel, Scope: apikey.Scopes{{Word: apikey.Read}},
		Owner: fmt.Sprintf("owner-%d", f.created%1000), CreatedAt: f.now, Version: 1,
	}
	_, _ = rand.Read(k.Digest[:]) // never returns an error
	k.BucketID = k.ID
	if f.created%3 == 0 {
		k.GatewayID, k.RateLimit, k.ExpiresAt = f.gatewayIDs[f.created%10], ratelimit.RateOf(f.limit), f.now.Add(1000*time.Hour)
	}
	f.created++
	return k
}
