package postgres

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/snapshot"
)

// Guarantee: a mutation that was not committed, because the server has crashed or another one was promoted before its COMMIT, is
// never taken for committed, although the server gives its number to other transactions and commits these.
func TestOutcomeOfANumberThatIsUsedAgain(t *testing.T) {
	for _, failover := range []bool{false, true} {
		t.Run(fmt.Sprintf("failover %t", failover), func(t *testing.T) {
			primary := postgrestest.Start(t, postgrestest.Config{Durable: true})
			url := primary.Database(t, "")
			lose := func() {
				primary.Kill(t)
				primary.Start(t)
			}
			if failover {
				replica := primary.Replica(t)
				url = primary.FailoverURL(replica, url)
				lose = func() {
					primary.Kill(t)
					replica.Promote(t)
				}
			}
			db := openWith(t, Config{URL: url})
			insert := func(name string) error {
				return db.Update(t.Context(), func(tx control.Tx) error { return insertAccount(t, tx, name) })
			}
			if err := insert("first"); err != nil {
				t.Fatal(err)
			}
			var xid string
			var mark []byte
			err := db.mutate(t.Context(), func(tx *tx) error {
				if err := insertAccount(t, tx, "lost"); err != nil {
					return err
				}
				if xid != "" {
					return errors.New("the mutation was made again")
				}
				xid, mark = tx.xid, tx.newest
				lose()
				useNumbers(t, url, xid)
				return nil
			})
			if err == nil {
				t.Errorf("Update of transaction %s, whose COMMIT the server never got, returned nil", xid)
			}
			if committed, err := db.outcome(xid, mark); committed || err == nil {
				t.Errorf("the outcome is %t, %v; want an error, since the number is another transaction's", committed, err)
			}
			stored := func(name string) bool {
				return db.View(t.Context(), func(tx control.ReadTx) error {
					_, err := tx.AccountByName(t.Context(), name)
					return err
				}) == nil
			}
			if err := insert("next"); err != nil || !stored("first") || !stored("next") || stored("lost") {
				t.Errorf("afterwards: insert %v, stored %t %t %t; want all but the lost account", err, stored("first"), stored("next"), stored("lost"))
			}
		})
	}
}

// insertAccount inserts an account, with the change of the change log.
func insertAccount(t *testing.T, tx control.Tx, name string) error {
	a := &account.Account{ID: id.New(id.Account), Name: name, Tier: account.Scale}
	if err := tx.InsertAccount(t.Context(), a); err != nil {
		return err
	}
	_, err := tx.AppendChange(t.Context(), snapshot.AccountChange, a.ID)
	return err
}

// useNumbers commits transactions until one has the number xid.
func useNumbers(t *testing.T, url, xid string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for range 1000 {
		var status *string
		if _, err := c.Exec(t.Context(), `DO $$ BEGIN PERFORM pg_current_xact_id(), pg_logical_emit_message(true, 'keygate', ''); END $$`); err != nil {
			t.Fatal(err)
		}
		err := c.QueryRow(t.Context(), `SELECT pg_xact_status($1::text::xid8)`, xid).Scan(&status)
		if err == nil && status != nil && *status == "committed" {
			return
		}
	}
	t.Fatalf("no transaction got the number %s", xid)
}
