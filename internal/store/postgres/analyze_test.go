package postgres

import "testing"

// Guarantee: a table that has grown is analyzed, after which none is left to analyze.
func TestAnalyze(t *testing.T) {
	db := fresh(t)
	for _, keys := range []int{0, 6000} {
		if keys > 0 {
			fillKeys(t, db, keys)
		}
		if err := db.Analyze(t.Context()); err != nil {
			t.Fatal(err)
		}
		var known, size int64
		if err := db.writer.QueryRow(t.Context(), `SELECT relpages, pg_relation_size(oid) / current_setting('block_size')::bigint
				FROM pg_class WHERE oid = 'keys'::regclass`).Scan(&known, &size); err != nil {
			t.Fatal(err)
		}
		if keys > 0 && (size <= 32 || known != size) {
			t.Errorf("with %d keys the server knows of %d pages, and there are %d", keys, known, size)
		}
	}
	var more int
	if err := db.writer.QueryRow(t.Context(), `SELECT count(*) FROM (`+grown+`) g`).Scan(&more); err != nil || more > 0 {
		t.Errorf("%d tables are still larger than the server knows, %v", more, err)
	}
}
