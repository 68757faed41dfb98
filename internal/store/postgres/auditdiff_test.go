package postgres

import (
	"testing"

	"github.com/keygate/keygate/internal/store/storetest"
)

// Guarantee: large diffs that an earlier version stored keep nobody from the log.
func TestOldLargeDiffs(t *testing.T) {
	db := fresh(t)
	storetest.OldLargeDiffs(t, db, func(accountID, diff string) {
		if _, err := db.writer.Exec(t.Context(), `UPDATE audit SET diff = $1 WHERE account_id = $2`, []byte(diff), accountID); err != nil {
			t.Fatal(err)
		}
	})
}
