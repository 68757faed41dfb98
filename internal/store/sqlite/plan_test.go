package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
)

// Every list of keys reads an index in its own order: nothing scans the table,
// and nothing but the page itself is sorted.
func TestKeyListPlans(t *testing.T) {
	db, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "keygate.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c, err := db.readers.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer db.readers.give(c)
	texts := map[string]bool{}
	for _, state := range []apikey.State{"", apikey.Active, apikey.Expired, apikey.Revoked} {
		for _, level := range []apikey.Level{"", apikey.AccountLevel} {
			for _, gateway := range []string{"", "gw_1"} {
				for _, owner := range []string{"", "ada"} {
					for _, query := range []string{"", "name"} {
						q := keyQuery{account: "acct_1", page: control.Page{Limit: 25}, filter: control.KeyFilter{
							State: state, Level: level, GatewayID: gateway, Owner: owner, Query: query, Now: time.Now()}}
						text, args := q.build()
						texts[text] = true
						checkPlan(t, c, keyColumns+text, args)
					}
				}
			}
		}
	}
	if len(texts) > 64 {
		t.Errorf("%d different statements stay prepared", len(texts))
	}
}

func checkPlan(t *testing.T, c *conn, query string, args []any) {
	t.Helper()
	rows, err := c.sql.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	sorts := 0
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(detail, "SCAN keys") {
			t.Errorf("%s\nreads the whole table: %s", query, detail)
		}
		if strings.Contains(detail, "TEMP B-TREE FOR ORDER BY") {
			sorts++
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if sorts > 1 {
		t.Errorf("%s\nsorts %d times", query, sorts)
	}
}
