package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/store"
)

// oldKey is a key of a database that knows no owners.
type oldKey struct {
	account, owner string
	phase          int
	created        int64
	scopes         string // beyond the first
}

// oldKeys have owners that have several keys, in several accounts, that have no live key, and that a new key could not
// have.
func oldKeys() []oldKey {
	return []oldKey{
		{"acct_a", "ada", 0, 1_700_000_000_000_000, ""}, {"acct_a", "ada", 2, 1_600_000_000_123_456, "write:orders"}, {"acct_a", " bob\t", 0, 5, "read:a"},
		{"acct_a", "", 0, 6, ""}, {"acct_a", "gone", 2, 7, "admin"}, {"acct_b", "ada", 1, 1_800_000_000_000_000, ""},
	}
}

// InsertOldKeys inserts accounts and keys into a database of the first schema.
func InsertOldKeys(ctx context.Context, db *sql.DB) error {
	for _, account := range []string{"acct_a", "acct_b", "acct_c"} {
		if _, err := db.ExecContext(ctx, `INSERT INTO accounts (id, name, plan, created_at) VALUES ($1, $1, 'starter', 1)`, account); err != nil {
			return err
		}
	}
	if _, err := db.ExecContext(ctx, `INSERT INTO gateways (id, account_id, name, shares_name, upstream, hostname, host_given, global_sustained, global_burst, timeout, max_body_bytes, requests, revision, is_default, created_at, version)
		VALUES ('gw_a', 'acct_a', 'a', false, '{}', 'a', true, '', '', '5s', 0, '{}', 0, false, 1, 1)`); err != nil {
		return err
	}
	for i, k := range oldKeys() {
		var of, more any
		if k.owner != "" {
			of = k.owner
		}
		if k.scopes != "" {
			more = k.scopes
		}
		_, err := db.ExecContext(ctx, `INSERT INTO keys (id, account_id, digest, prefix, level, phase, word, more_scopes, owner, created_at, version, name)
			VALUES ($1, $2, $3, 'kg_a', 1, $4, 1, $5, $6, $7, 1, 'k')`, fmt.Sprintf("key_%d", i), k.account, fmt.Appendf(make([]byte, 31), "%d", i), k.phase, more, of, k.created)
		if err != nil {
			return err
		}
	}
	return nil
}

// CheckOldKeys checks that each owner that one of these keys names has become an owner, active and without a plan, since its
// first key, and that the counts of the accounts are what they would have been.
func CheckOldKeys(t *testing.T, db store.Engine) {
	t.Helper()
	h := &harness{T: t, Engine: db}
	since := map[string]int64{}
	want := map[string]control.AccountCounts{"acct_a": {GatewayBytes: int64(len("a" + "{}" + "a" + "{}")), Targets: 1}}
	for _, k := range oldKeys() {
		n := want[k.account]
		if n.Keys++; k.phase < 2 {
			n.LiveKeys++
			n.KeyBytes += int64(len(k.scopes))
		}
		if of := k.account + k.owner; k.owner != "" {
			if since[of] == 0 {
				n.Owners++
				n.OwnerBytes += int64(len(k.owner))
				since[of] = k.created
			}
			since[of] = min(since[of], k.created)
		}
		want[k.account] = n
	}
	for _, account := range []string{"acct_a", "acct_b", "acct_c"} {
		same(h, account, get(h, func(ctx context.Context, tx control.ReadTx) (control.AccountCounts, error) {
			return tx.AccountCounts(ctx, account)
		}), want[account])
	}
	var owners []string
	h.must(h.EachOwner(h.Context(), func(o *owner.Owner) error {
		owners = append(owners, o.ID)
		at, ok := id.Parse(id.Owner, o.ID)
		ms := int64(at[0])<<40 | int64(at[1])<<32 | int64(at[2])<<24 | int64(at[3])<<16 | int64(at[4])<<8 | int64(at[5])
		first := since[o.AccountID+o.ExternalID]
		if !ok || at[6]>>4 != 7 || at[8]>>6 != 2 || ms != first/1000 || o.CreatedAt.UnixMicro() != first || o.State != owner.Active || o.PlanID != "" {
			t.Errorf("got %+v, want an active owner since %d", o, first)
		}
		return nil
	}))
	same(h, "owners", len(owners), len(since))
	for i, k := range oldKeys() {
		got := h.key(k.account, fmt.Sprintf("key_%d", i))
		if got.Owner != k.owner || slices.Contains(owners, got.OwnerID) != (k.owner != "") {
			t.Errorf("key %d: got the owner %q with the identifier %q", i, got.Owner, got.OwnerID)
		}
		if k.owner != "" && h.owner(k.account, got.OwnerID).ExternalID != k.owner {
			t.Errorf("key %d has another owner", i)
		}
	}
}

// BenchOwners measures the migration of a database of the first schema, whose keys have owners that become owners, and then
// reading all owners. old returns a function that migrates the database that fill has filled. digest is an expression for the digest
// of key i.
func BenchOwners(b *testing.B, digest string, old func(b *testing.B, fill func(*sql.DB) error) (migrate func() store.Engine)) {
	for _, keys := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			for b.Loop() {
				migrate := old(b, func(db *sql.DB) error { return insertOldKeys(b.Context(), db, keys, digest) })
				began := time.Now()
				db := migrate()
				migrated := time.Now()
				owners := 0
				if err := db.EachOwner(b.Context(), func(*owner.Owner) error { owners++; return nil }); err != nil || owners != keys/10 {
					b.Fatalf("got %d owners, %v", owners, err)
				}
				b.ReportMetric(time.Since(migrated).Seconds()*1000, "ms/owners")
				b.ReportMetric(migrated.Sub(began).Seconds(), "s/migration")
			}
		})
	}
}

// insertOldKeys inserts keys into a database of the first schema, ten for each owner.
func insertOldKeys(ctx context.Context, db *sql.DB, keys int, digest string) error {
	_, err := db.ExecContext(ctx, `INSERT INTO accounts (id, name, plan, created_at) VALUES ('acct_a', 'a', 'scale', 1)`)
	for first := 0; err == nil && first < keys; first += 10_000 {
		_, err = db.ExecContext(ctx, fmt.Sprintf(`WITH RECURSIVE numbers (i) AS (SELECT %d UNION ALL SELECT i + 1 FROM numbers WHERE i < %d)
			INSERT INTO keys (id, account_id, digest, prefix, level, phase, word, owner, created_at, version, name)
			SELECT 'key_' || (10000000 + i), 'acct_a', %s, 'kg_a', 1, 0, 1, 'customer-' || (i %% %d), 1700000000000000 + i, 1, 'name ' || i FROM numbers`,
			first, first+9_999, digest, keys/10))
	}
	return err
}
