package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/webhook"
)

// freshReader returns a reading connection to an empty database.
func freshReader(t *testing.T) *conn {
	t.Helper()
	db, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "keygate.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c, err := db.readers.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.readers.give(c) })
	return c
}

// Guarantee: every list of keys reads an index in the order of the list: no query scans the table
// or sorts more than a page.
func TestKeyListPlans(t *testing.T) {
	c := freshReader(t)
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
						sorts := 1
						if state == apikey.Revoked {
							sorts = 2 // also the keys of gateways that have ended, until these are stored as revoked
						}
						checkPlan(t, c, sorts, rows.KeyColumns+text, args)
					}
				}
			}
		}
	}
	if len(texts) > 64 {
		t.Errorf("got %d different statements, want at most 64", len(texts))
	}
	for _, f := range []control.KeyFilter{{}, {State: apikey.Active}, {State: apikey.Expired, Owner: "ada"}, {State: apikey.Active, GatewayID: "gw_1", Level: apikey.GatewayLevel}} {
		f.PlanID, f.Now = "plan_1", time.Now()
		q := keyQuery{account: "acct_1", page: control.Page{Limit: 25}, filter: f}
		text, args := q.build()
		checkPlan(t, c, 1, rows.KeyColumns+text, args)
	}
}

// Guarantee: a search looks its terms up in the index, whatever its length, and reads only keys
// that it finds and keys that are not indexed yet, both newest first, without sorting more than a
// page.
func TestKeySearchPlans(t *testing.T) {
	c := freshReader(t)
	for _, f := range []control.KeyFilter{
		{Query: "a"}, {Query: "ab"}, {Query: "abc"}, {Query: "abcd"}, {Query: strings.Repeat("abcdefgh", 100)}, {Name: "abc"}, {Name: "abc", Query: "%_"},
		{Query: "a", State: apikey.Revoked}, {Query: "a", State: apikey.Active, Owner: "ada", GatewayID: "gw_1", Level: apikey.GatewayLevel},
	} {
		f.Now = time.Now()
		q := keyQuery{account: "acct_1", page: control.Page{Limit: 25, After: "key_1"}, filter: f}
		text, args := q.build()
		sorts := 1
		if f.State == apikey.Revoked {
			sorts = 2
		}
		checkPlan(t, c, sorts, rows.KeyColumns+text, args)
		plan := planOf(t, c, rows.KeyColumns+text, args)
		for _, want := range []string{
			"SCAN key_terms VIRTUAL TABLE INDEX", "SEARCH k USING INTEGER PRIMARY KEY (rowid=?)",
			"SEARCH u USING PRIMARY KEY (account_id=? AND key_id<?)",
		} {
			if !slices.ContainsFunc(plan, func(step string) bool { return strings.Contains(step, want) }) {
				t.Errorf("%+v: the plan is without %q:\n%s", f, want, strings.Join(plan, "\n"))
			}
		}
	}
}

// Guarantee: every list of deliveries and events reads an index in the order of the list, and the
// queue and retention use indexes too.
func TestDeliveryPlans(t *testing.T) {
	c := freshReader(t)
	texts, ofEvent := map[string]bool{}, map[string]bool{}
	for _, since := range []time.Time{{}, time.Now()} {
		for _, of := range []event.Type{"", event.KeyCreated} {
			for _, known := range []bool{true, false} {
				text, args := eventQuery("acct_1", control.EventFilter{Type: of, Since: since}, control.Page{Limit: 25, After: "evt_1"}, 9, known)
				checkPlan(t, c, 0, text, args)
			}
			for _, hook := range []string{"", "wh_1"} {
				for _, state := range []webhook.DeliveryState{"", webhook.Pending, webhook.Failed} {
					text, args := deliveryQuery("acct_1", control.DeliveryFilter{WebhookID: hook, State: state, EventType: of, Since: since}, control.Page{Limit: 25})
					texts[text] = true
					checkPlan(t, c, 2, rows.DeliveryColumns+text, args) // the branches' ends, and the page
					text, args = deliveryQuery("acct_1", control.DeliveryFilter{EventID: "evt_1", WebhookID: hook, State: state, EventType: of, Since: since}, control.Page{Limit: 25})
					ofEvent[text] = true
					checkPlan(t, c, 0, rows.DeliveryColumns+text, args)
				}
			}
		}
	}
	if len(texts) > 16 || len(ofEvent) > 4 {
		t.Errorf("got %d and %d different statements, want at most 16 and 4", len(texts), len(ofEvent))
	}
	for _, used := range prepared(t, func(tx *tx) error {
		_, err := tx.Listeners(t.Context(), "acct_1", event.KeyCreated, 9)
		return err
	}) {
		checkPlan(t, c, 0, used, []any{"acct_1", event.KeyCreated, 9})
	}
	checkPlan(t, c, 2, rows.ForSQLite(rows.SubscribedQuery), []any{"acct_1", "wh_1", 9, event.KeyCreated, 9}) // merges a page of both
	for query, args := range map[string][]any{
		rows.NewlyCreatedQuery: {1, 9}, rows.BecameDueQuery: {1, "a", 1, 9}, rows.AllDueQuery: {"a", 9, 1}, rows.NextDueQuery: {1},
		rows.CandidatesQuery: {"w", 1, 9, 9, 9},
	} {
		checkPlan(t, c, 0, rows.ForSQLite(query), args)
	}
	for _, statement := range []string{
		strings.ReplaceAll(nextFanOut, "?", "'a'"),
		`SELECT n, due_at FROM deliveries INDEXED BY deliveries_due WHERE webhook_id = 'w' AND state = 0 AND due_at <= 1 ORDER BY due_at LIMIT 9`,
		`DELETE FROM events WHERE id = 'e' AND listed = 0 AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id)`,
		`UPDATE deliveries SET again = 1 WHERE n IN (SELECT n FROM deliveries WHERE event_id = 'e' AND webhook_id = 'w' AND state = 3 AND again = 0 LIMIT 5)`,
		`UPDATE deliveries SET token = NULL, due_at = next_at WHERE id = 'd' AND token = 't'`,
		`SELECT 1 FROM deliveries INDEXED BY deliveries_due WHERE webhook_id = 'w' AND due_at IS NOT NULL AND (token IS NULL OR due_at <= 1) LIMIT 9`,
		`SELECT n FROM attempts WHERE n > 8 AND n < 16 ORDER BY n`,
		`SELECT n FROM deliveries INDEXED BY deliveries_age WHERE state = 3 AND finished_at < 1 ORDER BY finished_at LIMIT 9`,
	} {
		checkPlan(t, c, 0, statement, nil)
	}
}

// Guarantee: every list of owners and plans reads an index in the order of the list, and what asks who has a plan, or
// whether an owner has active keys, reads indexes.
func TestOwnerPlans(t *testing.T) {
	c := freshReader(t)
	page := control.Page{Limit: 25, After: "own_1"}
	for _, f := range []control.OwnerFilter{
		{}, {State: owner.Active}, {State: owner.Suspended}, {ExternalID: "ada", State: owner.Active, PlanID: "plan_1"}, {PlanID: "plan_1"}, {PlanID: "plan_1", State: owner.Suspended}, {ExternalID: "ada"}, {Query: "a"}, {Query: "a", State: owner.Suspended},
	} {
		for _, used := range prepared(t, func(tx *tx) error {
			_, err := tx.Owners(t.Context(), "acct_1", f, page)
			return err
		}) {
			checkPlan(t, c, 0, used, anyArgs(used))
		}
	}
	for _, used := range prepared(t, func(tx *tx) error {
		_, all := tx.Plans(t.Context(), "acct_1", control.PlanFilter{}, page)
		_, named := tx.Plans(t.Context(), "acct_1", control.PlanFilter{Name: "free"}, page)
		_, found := tx.Plans(t.Context(), "acct_1", control.PlanFilter{Query: "free"}, page)
		_, use := tx.PlanUse(t.Context(), "acct_1", "plan_1", 9)
		_, active := tx.OwnerHasActiveKeys(t.Context(), "acct_1", "own_1", time.Now())
		return errors.Join(all, named, found, use, active)
	}) {
		checkPlan(t, c, 0, used, anyArgs(used))
	}
}

// anyArgs returns as many arguments as a statement has parameters.
func anyArgs(statement string) []any {
	n := strings.Count(statement, "?")
	for i := n; i > 0; i-- {
		if strings.Contains(statement, fmt.Sprintf("?%d", i)) {
			n = i
			break
		}
	}
	return make([]any, n)
}

// Guarantee: a bound on the number of endpoints or gateways reads an index.
func TestCountPlans(t *testing.T) {
	c := freshReader(t)
	for _, used := range prepared(t, func(tx *tx) error {
		_, first := tx.HasWebhooks(t.Context(), "acct_1", 9)
		_, second := tx.HasGateways(t.Context(), "acct_1", 9)
		return errors.Join(first, second)
	}) {
		checkPlan(t, c, 0, used, []any{"acct_1", 9})
	}
}

// Guarantee: the keys of an import are looked up one by one, however many the account has.
func TestDigestPlans(t *testing.T) {
	for _, used := range prepared(t, func(tx *tx) error {
		_, err := tx.HaveDigests(t.Context(), "acct_1", make([]apikey.Digest, 300))
		return err
	}) {
		args := make([]any, strings.Count(used, "?"))
		for i := range args {
			args[i] = []byte{1}
		}
		plan := planOf(t, freshReader(t), used, args)
		if len(plan) != 1 || !strings.HasPrefix(plan[0], "SEARCH keys USING INDEX sqlite_autoindex_keys_") || !strings.HasSuffix(plan[0], " (digest=?)") {
			t.Errorf("%.80s\nhas the plan %q, want a search for digests", used, plan)
		}
	}
}

// Guarantee: the keys that share their limits through rotations are found one by one, however many keys the account has.
func TestBucketPlans(t *testing.T) {
	for name, f := range map[string]func(tx *tx) error{
		"keys": func(tx *tx) error {
			_, err := tx.KeysOfBucket(t.Context(), "acct_1", "key_1", time.Now(), 9)
			return err
		},
		"number": func(tx *tx) error {
			_, err := tx.CountKeysOfBucket(t.Context(), "acct_1", "key_1", time.Now(), 9)
			return err
		},
	} {
		for _, used := range prepared(t, f) {
			plan := planOf(t, freshReader(t), used, []any{"key_1", 1, "acct_1", 9})
			if slices.ContainsFunc(plan, func(step string) bool { return strings.Contains(step, "(account_id=?)") }) ||
				!slices.Contains(plan, "SEARCH keys USING INTEGER PRIMARY KEY (rowid=?)") {
				t.Errorf("%s: got the plan\n%s", name, strings.Join(plan, "\n"))
			}
		}
	}
}

// Guarantee: what a change of a gateway, a route or an issuer looks for among the gateways and issuers of the account reads an index of
// the gateways alone, and no issuers but those that it names, however large the settings of the others are.
func TestIssuerPlans(t *testing.T) {
	for want, f := range map[string]func(tx *tx) error{
		"COVERING INDEX gateways_issuers": func(tx *tx) error {
			_, err := tx.GatewaysOfIssuer(t.Context(), "acct_1", "login", 9)
			return err
		},
		"INDEX issuers_name (account_id=? AND name=?)": func(tx *tx) error {
			_, err := tx.IssuersNamed(t.Context(), "acct_1", []string{"login"})
			return err
		},
	} {
		for _, used := range prepared(t, f) {
			plan := planOf(t, freshReader(t), used, []any{"acct_1", `["login"]`, 9}[:strings.Count(used, "?")])
			if !slices.ContainsFunc(plan, func(step string) bool { return strings.Contains(step, want) }) {
				t.Errorf("%s\ngot the plan\n%s\nwant %s", used, strings.Join(plan, "\n"), want)
			}
		}
	}
}

// prepared returns the statements that f prepares on a new connection to an empty database.
func prepared(t *testing.T, f func(*tx) error) []string {
	t.Helper()
	c := freshReader(t)
	made := &tx{readTx: readTx{c: c}}
	made.Reader = rows.Reader{ReadTx: &made.readTx, Pages: c.pages, Codec: c.codec}
	made.Writer = rows.NewWriter(&made.Reader, made)
	if err := f(made); err != nil {
		t.Fatal(err)
	}
	if len(c.stmts) == 0 {
		t.Fatal("no statement was prepared")
	}
	var list []string
	for query := range c.stmts {
		list = append(list, rows.ForSQLite(query))
	}
	return list
}

// checkPlan checks that the query scans no table and sorts at most maxSorts times.
func checkPlan(t *testing.T, c *conn, maxSorts int, query string, args []any) {
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
		table, scans := strings.CutPrefix(detail, "SCAN ")
		if scans && slices.Contains([]string{"keys", "k", "keys_unindexed", "u", "deliveries", "events", "attempts", "webhooks", "owners", "plans"}, strings.Fields(table)[0]) {
			t.Errorf("%s\nscans a table: %s", query, detail)
		}
		if strings.Contains(detail, "TEMP B-TREE FOR ORDER BY") {
			sorts++
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if sorts > maxSorts {
		t.Errorf("%s\nsorts %d times, want at most %d", query, sorts, maxSorts)
	}
}

// Guarantee: a traffic report finds its chunks in indexes alone.
func TestTrafficPlans(t *testing.T) {
	c := freshReader(t)
	for _, tier := range []traffic.Tier{traffic.Minutes, traffic.Hours, traffic.Days} {
		for _, only := range []*[16]byte{nil, {1}} {
			query, args := rows.ChunkQuery(&traffic.ChunkQuery{AccountID: "acct_1", Part: traffic.Keys, Tier: tier, Before: 1, Only: only})
			for _, step := range planOf(t, c, rows.ForSQLite(query), args) {
				if strings.HasPrefix(step, "SCAN traffic") || strings.HasPrefix(step, "SEARCH traffic") && !strings.Contains(step, "COVERING INDEX") {
					t.Errorf("%s\nreads the table: %s", query, step)
				}
			}
		}
	}
}

// planOf returns the steps of the plan of a query.
func planOf(t *testing.T, c *conn, query string, args []any) (steps []string) {
	t.Helper()
	rows, err := c.sql.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}

// Guarantee: no statement is prepared again for each value of its limit (see rowLimit).
func TestLimitsArePlannedOnce(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	bare := regexp.MustCompile(`LIMIT \?\d*([^+\d]|$)`)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			if bare.MatchString(line) && !strings.Contains(line, "regexp.") {
				t.Errorf("%s:%d: write the limit as ?+0: %s", name, n+1, strings.TrimSpace(line))
			}
		}
	}
}

// Guarantee: the lists of revisions, and the queries for old revisions, read an index in its order,
// however many revisions, gateways and accounts there are.
func TestRevisionPlans(t *testing.T) {
	c := freshReader(t)
	queries := prepared(t, func(tx *tx) error {
		_, err := tx.Revisions(t.Context(), "gw_1", 9, 0)
		return err
	})
	for _, query := range []string{
		rows.GoneGatewayQuery, rows.LongHistoryQuery, rows.FullAccountQuery, rows.LargestHistoriesQuery, rows.OldestRevisionsQuery,
	} {
		queries = append(queries, rows.ForSQLite(query))
	}
	for _, query := range queries {
		for _, step := range planOf(t, c, query, []any{1, 1, 1}[:strings.Count(query, "?")]) {
			if strings.HasPrefix(step, "SCAN ") || strings.Contains(step, "TEMP B-TREE") {
				t.Errorf("%s\nreads more than it returns: %s", query, step)
			}
		}
	}
}
