package postgres

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
)

// Guarantee: after a failover, a transaction of the former primary does not count as committed because the new primary has
// committed another one with the same number.
func TestOutcomeAfterFailover(t *testing.T) {
	primary := postgrestest.Start(t, postgrestest.Config{})
	url := primary.Database(t, "")
	replica := primary.Replica(t)
	url = primary.FailoverURL(replica, url)
	number := func() (xid, timeline string) {
		t.Helper()
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		if err := c.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text, (`+timelineStatement+`)`).Scan(&xid, &timeline); err != nil {
			t.Fatal(err)
		}
		return xid, timeline
	}
	db := openWith(t, Config{URL: url})
	ask := func(xid, timeline string) string {
		t.Helper()
		committed, err := db.outcome(xid, timeline)
		return fmt.Sprint(committed, err != nil)
	}
	xid, before := number()
	if got := ask(xid, before); got != "true false" {
		t.Errorf("before the failover: got %s, want a committed transaction", got)
	}
	primary.Kill(t)
	replica.Promote(t)
	xid, after := number()
	if got := ask(xid, after); got != "true false" {
		t.Errorf("after the failover: got %s, want a committed transaction", got)
	}
	for _, other := range []string{before, ""} {
		if got := ask(xid, other); got != "false true" {
			t.Errorf("after the failover, of the timeline %q: got %s, want an error", other, got)
		}
	}
}
