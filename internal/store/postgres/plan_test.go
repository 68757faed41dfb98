package postgres

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/store/rows"
)

// fillKeys inserts keys of one account, in all states, and some of another, and indexes them.
func fillKeys(t *testing.T, db *DB, keys int) {
	t.Helper()
	for _, statement := range []string{
		`INSERT INTO accounts (id, name, plan, created_at) VALUES ('acct_1', 'a', 'scale', 0), ('acct_2', 'b', 'scale', 0)`,
		fmt.Sprintf(`INSERT INTO keys (id, account_id, digest, prefix, level, phase, word, gateway_id, owner, expires_at, created_at, revoked_at, version, name)
			SELECT 'key_' || lpad(i::text, 8, '0'), 'acct_' || (1 + (i %% 10 = 0)::int), sha256(i::text::bytea), 'kg_' || substr(md5(i::text), 1, 6), 1 + (i %% 100 = 0)::int, i %% 3, 1,
				'gw_' || i %% 200, 'owner' || i %% 500, CASE WHEN i %% 3 = 1 THEN 5 END, 0, CASE WHEN i %% 3 = 2 THEN 5 END, 1, 'name ' || i
			FROM generate_series(1, %d) AS i`, keys),
	} {
		if _, err := db.writer.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for done := 1; done > 0; {
		if err := db.mutate(t.Context(), func(tx *tx) (err error) {
			done, err = tx.IndexKeys(t.Context(), keys)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.writer.Exec(t.Context(), `ANALYZE`); err != nil {
		t.Fatal(err)
	}
}

// Guarantee: every list of keys reads indexes: no query has to scan the table. There are few different
// statements.
func TestKeyListPlans(t *testing.T) {
	const keys = 6000
	db := fresh(t)
	fillKeys(t, db, keys)
	texts := map[string]bool{}
	for _, state := range []apikey.State{"", apikey.Active, apikey.Expired, apikey.Revoked} {
		for _, level := range []apikey.Level{"", apikey.AccountLevel} {
			for _, gateway := range []string{"", "gw_1"} {
				for _, owner := range []string{"", "owner1"} {
					q := keyQuery{account: "acct_1", page: control.Page{Limit: 25}, filter: control.KeyFilter{
						State: state, Level: level, GatewayID: gateway, Owner: owner, Now: time.Now()}}
					q2 := q
					q2.filter.Query = "name 599"
					for _, one := range []struct {
						q        *keyQuery
						branches []string
					}{{&q, q.listed()}, {&q2, q2.searched()}} {
						text := rows.KeyColumns + `WHERE id = ANY (ARRAY(` + strings.Join(one.branches, " UNION ALL ") + `)) ORDER BY id DESC LIMIT ` + one.q.value(25)
						texts[text] = true
						if plan := explain(t, db, text, one.q.args, one.q.filter.Query == ""); regexp.MustCompile(`Seq Scan on (keys|key_terms)\b`).MatchString(plan) {
							t.Errorf("a list scans the table:\n%s\n%s", text, plan)
						}
					}
				}
			}
		}
	}
	if len(texts) > 64 {
		t.Errorf("got %d different statements, want at most 64", len(texts))
	}
}

// Guarantee: every list of owners, of plans and of the keys of a plan reads an index, and so does what asks who has a plan or
// whether an owner has active keys: none scans a table.
func TestOwnerPlans(t *testing.T) {
	db := fresh(t)
	fillKeys(t, db, 6000)
	if _, err := db.writer.Exec(t.Context(), `UPDATE keys SET plan_id = 'plan_' || length(name) * 50 + n % 50;
		INSERT INTO plans (id, account_id, name, title, limits, time_zone, anchor_day, created_at, version)
		SELECT 'plan_' || n, 'acct_1', 'p' || n, '', '[]', 'UTC', 1, 0, 1 FROM generate_series(1, 6000) n;
		INSERT INTO owners (id, account_id, external_id, plan_id, suspended, created_at)
		SELECT 'own_' || n, 'acct_1', 'o' || n, 'plan_' || n % 50, n % 20 = 0, 0 FROM generate_series(1, 6000) n;
		ANALYZE`); err != nil {
		t.Fatal(err)
	}
	check := func(mayScan bool, f func(*tx) error) {
		t.Helper()
		for _, r := range recordedReads(t, db, f) {
			if plan := explain(t, db, r.query, r.args, mayScan); regexp.MustCompile(`Seq Scan on (keys|owners|plans)\b`).MatchString(plan) {
				t.Errorf("a query scans a table:\n%s\n%s", r.query, plan)
			}
		}
	}
	page := control.Page{Limit: 25, After: "own_1"}
	for _, f := range []control.OwnerFilter{
		{}, {State: owner.Active}, {State: owner.Suspended}, {PlanID: "plan_1"}, {PlanID: "plan_1", State: owner.Suspended}, {ExternalID: "o7"}, {Query: "o7"}, {Query: "o7", State: owner.Suspended},
	} {
		check(f.Query == "", func(tx *tx) error { _, err := tx.Owners(t.Context(), "acct_1", f, page); return err })
	}
	for _, f := range []control.PlanFilter{{}, {Name: "p7"}, {Query: "p7"}} {
		check(f.Query == "", func(tx *tx) error { _, err := tx.Plans(t.Context(), "acct_1", f, page); return err })
	}
	for _, state := range []apikey.State{"", apikey.Active, apikey.Expired, apikey.Revoked} {
		f := control.KeyFilter{PlanID: "plan_451", State: state, Now: time.Now()}
		check(true, func(tx *tx) error { _, err := tx.Keys(t.Context(), "acct_1", f, page); return err })
	}
	check(true, func(tx *tx) error { _, err := tx.PlanUse(t.Context(), "acct_1", "plan_451", 9); return err })
	check(true, func(tx *tx) error {
		_, err := tx.OwnerHasActiveKeys(t.Context(), "acct_1", "own_7", time.Now())
		return err
	})
}

// recordedReads returns what f reads.
func recordedReads(t *testing.T, db *DB, f func(*tx) error) (reads []recorded) {
	t.Helper()
	err := db.mutate(t.Context(), func(tx *tx) error {
		err := f(tx)
		reads = tx.reads
		return err
	})
	if err != nil || len(reads) == 0 {
		t.Fatalf("got %d reads, %v", len(reads), err)
	}
	return reads
}

// explain returns the plan of a query. Without mayScan, it has no scans of tables if there is an index.
func explain(t *testing.T, db *DB, query string, args []any, mayScan bool) string {
	t.Helper()
	var plan strings.Builder
	err := db.write(t.Context(), func(r *tx) error {
		// Scanning some thousand rows may be cheaper than the index.
		if _, err := r.Exec(t.Context(), "set", fmt.Sprintf(`SET LOCAL enable_seqscan = %t`, mayScan)); err != nil {
			return err
		}
		return r.Query(t.Context(), "explain", `EXPLAIN `+query, args, func(row *rows.Row) error {
			var line string
			err := row.Scan(&line)
			fmt.Fprintln(&plan, line)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan.String()
}

// Guarantee: a search finds the same keys whether they are among the newest or not, indexed or changed
// since.
func TestSearchBeyondTheNewestKeys(t *testing.T) {
	const keys = newestSearched * 2
	db := fresh(t)
	fillKeys(t, db, keys)
	err := db.mutate(t.Context(), func(t2 *tx) error { // not indexed afterwards
		_, err := t2.Exec(t.Context(), "rename", `UPDATE keys SET name = 'RENAMED ' || name WHERE id = 'key_00000007'`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []control.KeyFilter{
		{Query: "name"}, {Query: "e 77"}, {Query: "renamed name 7"}, {Query: "Name 1", State: apikey.Revoked},
		{Name: "name 11"}, {Name: "name 12", State: apikey.Revoked}, {Query: "name 1", Owner: "owner1"},
	} {
		f.Now = time.Now()
		want := 0
		for i := 1; i <= keys; i++ { // the same rule, without an index
			name := fmt.Sprintf("name %d", i)
			if i == 7 {
				name = "RENAMED " + name
			}
			owner := fmt.Sprintf("owner%d", i%500)
			if i%10 != 0 && (f.Name == "" || f.Name == name) && (f.Owner == "" || f.Owner == owner) &&
				(f.State == "" || i%3 == 2) && strings.Contains(rows.LowerASCII(name), rows.LowerASCII(f.Query)) {
				want++
			}
		}
		err := db.View(t.Context(), func(tx control.ReadTx) error {
			list, err := tx.Keys(t.Context(), "acct_1", f, control.Page{Limit: 100})
			if len(list) != min(want, 100) {
				t.Errorf("%+v: got %d keys, want %d", f, len(list), min(want, 100))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
