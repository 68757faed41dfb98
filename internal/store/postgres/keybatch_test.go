package postgres

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
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

// Guarantee: of a thousand keys whose records are read at once, an unreadable one keeps no other from being read,
// whether Keygate cannot decode it or the server cannot read it; keys without a record are left out. The same
// holds for all keys at a start.
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

	damage(t, db, "keys", "owner", "key_00000100")
	read = batch{}
	if err := db.KeysByID(t.Context(), ids, read.add); err != nil {
		t.Fatal(err)
	}
	read.want(t, 998, "key_00000100", "key_00000700")
	all = batch{}
	if err := db.EachReadableKey(t.Context(), time.UnixMicro(0), func(k *apikey.Key) error { all.add(k.ID, k, nil); return nil },
		func(keyID string, err error) { all.add(keyID, nil, err) }); err != nil {
		t.Fatal(err)
	}
	all.want(t, 998, "key_00000100", "key_00000700")
}

// damage makes reading a column of a row fail as the server does for a damaged page: a view stands in front of the
// table.
func damage(t *testing.T, db *DB, table, column, recordID string) {
	t.Helper()
	var columns string
	err := db.writer.QueryRow(t.Context(), `SELECT string_agg(CASE attname WHEN $2 THEN 'damaged_' || $1 || '(id, ' || attname || ') AS ' || attname ELSE attname::text END, ', ' ORDER BY attnum)
		FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped`, table, column).Scan(&columns)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.writer.Exec(t.Context(), `ALTER TABLE `+table+` RENAME TO real_`+table+`;
		CREATE FUNCTION damaged_`+table+`(record text, value text) RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN
			IF record = '`+recordID+`' THEN RAISE EXCEPTION 'invalid page' USING ERRCODE = 'XX001'; END IF; RETURN value; END $$;
		CREATE VIEW `+table+` AS SELECT `+columns+` FROM real_`+table); err != nil {
		t.Fatal(err)
	}
}

// Guarantee: an account whose record cannot be read counts as suspended and does not stop other accounts, whether
// Keygate cannot decode it or the server cannot read it.
func TestOneBadAccountStopsNoOther(t *testing.T) {
	db := fresh(t)
	if _, err := db.writer.Exec(t.Context(), `INSERT INTO accounts (id, name, plan, hosts, created_at) VALUES
		('acct_1', 'a', 'scale', '{', 0), ('acct_2', 'b', 'scale', NULL, 0), ('acct_3', 'c', 'scale', NULL, 0)`); err != nil {
		t.Fatal(err)
	}
	check := func(what string, bad ...string) {
		t.Helper()
		var found, suspended []string
		list, err := db.ReadableAccounts(t.Context(), func(accountID string, err error) {
			if !errors.Is(err, snapshot.ErrDamaged) {
				t.Errorf("%s: the error of %s is %v, want that its record is damaged", what, accountID, err)
			}
			found = append(found, accountID)
		})
		for _, a := range list {
			if a.State == account.Suspended {
				suspended = append(suspended, a.ID)
			}
		}
		if err != nil || len(list) != 3 || !slices.Equal(suspended, bad) || !slices.Equal(slices.Compact(found), bad) {
			t.Errorf("%s: got %+v, %v, and %v cannot be read; want %v", what, list, err, found, bad)
		}
	}
	check("a value that cannot be decoded", "acct_1")
	damage(t, db, "accounts", "plan", "acct_3")
	check("a damaged page, too", "acct_1", "acct_3")
	if db.Trouble() != "" {
		t.Errorf("the store is in trouble: %s", db.Trouble())
	}
}

// Guarantee: the error of a gateway whose record cannot be read says so, whether Keygate cannot decode it or the server
// cannot read it, and does not say that the database cannot be used; the error of a lost connection does not.
func TestBadGatewayIsTold(t *testing.T) {
	db := fresh(t)
	if _, err := db.writer.Exec(t.Context(), `INSERT INTO accounts (id, name, plan, created_at) VALUES ('acct_1', 'a', 'scale', 0);
		INSERT INTO gateways (id, account_id, name, shares_name, upstream, hostname, host_given, global_sustained, global_burst, timeout, max_body_bytes, requests, revision, is_default, created_at, version)
		SELECT 'gw_' || n, 'acct_1', 'g', true, CASE n WHEN 1 THEN '{' ELSE '{}' END, 'h' || n, true, '', '', '5s', 0, '{}', 0, false, 0, 1 FROM generate_series(1, 3) n`); err != nil {
		t.Fatal(err)
	}
	damage(t, db, "gateways", "name", "gw_2")
	if err := db.EachGateway(t.Context(), func(*gateway.Gateway, []gateway.Route) error { return nil }); !errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("reading all gateways: got %v", err)
	}
	if ids, err := db.GatewayIDs(t.Context()); err != nil || len(ids) != 3 {
		t.Errorf("got the gateways %v, %v; want 3", ids, err)
	}
	for gatewayID, damaged := range map[string]bool{"gw_1": true, "gw_2": true, "gw_3": false} {
		_, _, err := db.GatewayByID(t.Context(), gatewayID)
		_, deltaErr := db.GatewayDelta(t.Context(), gatewayID, nil, 0)
		if errors.Is(err, snapshot.ErrDamaged) != damaged || errors.Is(deltaErr, snapshot.ErrDamaged) != damaged || damaged == (err == nil) || db.Trouble() != "" {
			t.Errorf("%s: got %v and %v, and the trouble %q", gatewayID, err, deltaErr, db.Trouble())
		}
	}
	if err := ofRecord(translate("read", io.ErrUnexpectedEOF)); errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("a lost connection counts as a damaged record: %v", err)
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

// readPlansAndOwners returns the identifiers of all plans and owners that can be read, and of those that cannot.
func readPlansAndOwners(t *testing.T, db *DB) (good, bad []string) {
	t.Helper()
	damaged := func(id string, err error) {
		if !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("the error of %s is %v, want that its record is damaged", id, err)
		}
		bad = append(bad, id)
	}
	err := errors.Join(
		db.EachReadablePlan(t.Context(), func(p *plan.Plan) error { good = append(good, p.ID); return nil }, damaged),
		db.EachReadableOwner(t.Context(), func(o *owner.Owner) error { good = append(good, o.ID); return nil }, damaged))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(good)
	slices.Sort(bad)
	return slices.Compact(good), slices.Compact(bad) // what was read before the first damaged page is read again
}

// Guarantee: of many plans and owners, one whose record cannot be read keeps no other from being read, whether Keygate
// cannot decode it or the server cannot read it. Read alone, it says that it is damaged, and not that the database cannot be
// used.
func TestOneBadPlanOrOwnerStopsNoOther(t *testing.T) {
	db := fresh(t)
	if _, err := db.writer.Exec(t.Context(), `INSERT INTO accounts (id, name, plan, created_at) VALUES ('acct_1', 'a', 'scale', 0);
		INSERT INTO plans (id, account_id, name, title, limits, time_zone, anchor_day, created_at, version)
		SELECT 'plan_' || n, 'acct_1', 'p' || n, '', CASE n WHEN 3 THEN '[{' ELSE '[]' END, 'UTC', 1, 0, 1 FROM generate_series(1, 9) n;
		INSERT INTO owners (id, account_id, external_id, created_at) SELECT 'own_' || n, 'acct_1', 'o' || n, 0 FROM generate_series(1, 1500) n`); err != nil {
		t.Fatal(err)
	}
	check := func(what string, good int, bad ...string) {
		t.Helper()
		read, not := readPlansAndOwners(t, db)
		if len(read) != good || !slices.Equal(not, bad) || db.Trouble() != "" {
			t.Errorf("%s: %d were read and %v not, with the trouble %q; want %d and %v", what, len(read), not, db.Trouble(), good, bad)
		}
		for _, id := range append(bad, "plan_1", "own_1") {
			var err error
			if strings.HasPrefix(id, "plan_") {
				_, err = db.PlanByID(t.Context(), id)
			} else {
				_, err = db.OwnerByID(t.Context(), id)
			}
			if errors.Is(err, snapshot.ErrDamaged) != slices.Contains(bad, id) || !errors.Is(err, snapshot.ErrDamaged) && err != nil {
				t.Errorf("%s: reading %s alone returned %v", what, id, err)
			}
		}
	}
	check("a value that cannot be decoded", 1508, "plan_3")
	damage(t, db, "plans", "title", "plan_5")
	check("a damaged page of plans, too", 1507, "plan_3", "plan_5")
	damage(t, db, "owners", "external_id", "own_1234")
	check("a damaged page of owners, too", 1506, "own_1234", "plan_3", "plan_5")
}
