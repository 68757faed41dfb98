package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Guarantee: a transaction that another program leaves open is seen with its age, from its first snapshot on, until it
// ends.
func TestOldestSnapshot(t *testing.T) {
	url := migrated(t)
	db := openWith(t, Config{URL: url})
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	age := func() time.Duration {
		t.Helper()
		age, err := db.OldestSnapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return age
	}
	var before, after time.Duration
	for _, step := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT FROM keys`} {
		if _, err := other.Exec(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	if before = age(); before == 0 {
		t.Error("a transaction with a snapshot is not seen")
	}
	if after = age(); after <= before {
		t.Errorf("its age went from %v to %v, want it to grow", before, after)
	}
	if i, err := Inspect(t.Context(), url, "a"); err != nil || i.OldestSnapshot <= after {
		t.Errorf("Inspect found the age %v and the error %v, want more than %v", i.OldestSnapshot, err, after)
	}
	if _, err := other.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	if got := age(); got >= after {
		t.Errorf("after its end the age is %v, want that of another transaction or none", got)
	}
}
