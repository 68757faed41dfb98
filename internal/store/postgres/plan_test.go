package postgres

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
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
