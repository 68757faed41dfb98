package postgres

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/snapshot"
)

// batch is what KeysByID and EachReadableKey say of keys.
type batch struct {
	good []string
	bad  []string
}

func (b *batch) add(keyID string, _ *apikey.Key, err error) {
	if err != nil {
		b.bad = append(b.bad, keyID)
	} else {
		b.good = append(b.good, keyID)
	}
}

func (b *batch) want(t *testing.T, good int, bad ...string) {
	t.Helper()
	slices.Sort(b.good)
	slices.Sort(b.bad)
	if len(slices.Compact(b.good)) != good || !slices.Equal(slices.Compact(b.bad), bad) {
		t.Errorf("%d keys were read and %v not, want %d and %v", len(b.good), b.bad, good, bad)
	}
}

// Guarantee: of a thousand keys whose records are read at once, one that cannot be read keeps no other from being
// read, whether Keygate cannot decode it or the server cannot read it; keys without a record are left out. The
// same holds for all keys at a start.
func TestOneBadKeyStopsNoOther(t *testing.T) {
	db := fresh(t)
	fillKeys(t, db, 1000)
	if _, err := db.writer.Exec(t.Context(), `UPDATE keys SET rate_limit = 'soon' WHERE id = 'key_00000700'`); err != nil {
		t.Fatal(err)
	}
	ids := []string{"key_none"}
	if err := db.EachKey(t.Context(), time.UnixMicro(0), func(*apikey.Key) error { return nil }); err == nil {
		t.Fatal("a key that cannot be decoded is no error for a single node")
	}
	var all batch
	if err := db.EachReadableKey(t.Context(), time.UnixMicro(0), func(k *apikey.Key) error {
		ids = append(ids, k.ID)
		all.add(k.ID, k, nil)
		return nil
	}, func(keyID string, err error) { all.add(keyID, nil, err) }); err != nil {
		t.Fatal(err)
	}
	all.want(t, 999, "key_00000700")
	ids = append(ids, "key_00000700")
	var read batch
	if err := db.KeysByID(t.Context(), ids, read.add); err != nil {
		t.Fatal(err)
	}
	read.want(t, 999, "key_00000700")

	// A view in front of the table fails as the server does for a damaged page.
	if _, err := db.writer.Exec(t.Context(), `ALTER TABLE keys RENAME TO real_keys;
		CREATE FUNCTION damaged(key text, owner text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
			IF key = 'key_00000100' THEN RAISE EXCEPTION 'invalid page' USING ERRCODE = 'XX001'; END IF; RETURN owner; END $$;
		CREATE VIEW keys AS SELECT id, account_id, digest, prefix, level, word, resource, more_scopes, gateway_id, damaged(id, owner) AS owner, bucket_id, rate_limit,
			expires_at, last_used_at, created_at, revoked_at, expiry_told, rotated_from, rotated_to, version, name, metadata FROM real_keys`); err != nil {
		t.Fatal(err)
	}
	read = batch{}
	if err := db.KeysByID(t.Context(), ids, read.add); err != nil {
		t.Fatal(err)
	}
	read.want(t, 998, "key_00000100", "key_00000700")
}

// Guarantee: an account whose record cannot be read counts as suspended and stops no other.
func TestOneBadAccountStopsNoOther(t *testing.T) {
	db := fresh(t)
	if _, err := db.writer.Exec(t.Context(), `INSERT INTO accounts (id, name, plan, hosts, created_at) VALUES ('acct_1', 'a', 'scale', '{', 0), ('acct_2', 'b', 'scale', NULL, 0)`); err != nil {
		t.Fatal(err)
	}
	list, err := db.Accounts(t.Context())
	if err != nil || len(list) != 2 || list[0].State != account.Suspended || list[1].State != account.Active {
		t.Errorf("got %+v, %v; want the first one suspended and the second active", list, err)
	}
}

// Guarantee: the entry of a revocation has the digest of the key.
func TestRevocationsHaveDigests(t *testing.T) {
	db := fresh(t)
	digest := apikey.DigestOf(strings.Repeat("x", 40))
	err := db.mutate(t.Context(), func(tx *tx) error {
		if _, err := tx.AppendChange(t.Context(), snapshot.KeyChange, "key_1"); err != nil {
			return err
		}
		_, err := tx.AppendRevocation(t.Context(), "key_1", digest)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	list, known, err := db.ChangesAfter(context.Background(), snapshot.Position{}, 10)
	if err != nil || !known || len(list) != 2 || list[0].Revoked != nil || list[1].Revoked == nil || *list[1].Revoked != digest || list[1].Kind != snapshot.KeyChange {
		t.Errorf("got %+v, %t, %v; want the digest with the second entry", list, known, err)
	}
}
