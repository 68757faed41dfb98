package postgres

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/store/rows"
)

// Guarantee: docs/limits.md lists every table of the database, with its bound.
func TestEveryTableHasABound(t *testing.T) {
	page, err := os.ReadFile("../../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, title := range []string{"What the store keeps", "What PostgreSQL adds"} {
		_, section, found := strings.Cut(string(page), "\n## "+title+"\n")
		if !found {
			t.Fatalf("docs/limits.md has no section %q", title)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for line := range strings.Lines(section) {
			cells := strings.Split(line, "|")
			if len(cells) != 5 || strings.TrimSpace(cells[2]) == "" || strings.TrimSpace(cells[3]) == "" {
				continue
			}
			if names := strings.TrimSpace(cells[1]); regexp.MustCompile("^(`[a-z_]+`(, )?)+$").MatchString(names) {
				listed = append(listed, strings.Split(strings.ReplaceAll(names, "`", ""), ", ")...)
			}
		}
	}
	db := fresh(t)
	var tables []string
	err = db.view(t.Context(), db.readers, func(r *readTx) error {
		return r.Query(t.Context(), "list tables", `SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
			AND relnamespace = current_schema()::regnamespace AND relname <> 'goose_db_version' ORDER BY relname`, nil, func(row *rows.Row) error {
			var name string
			err := row.Scan(&name)
			tables = append(tables, name)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(listed)
	if !slices.Equal(listed, tables) {
		t.Errorf("docs/limits.md lists the tables\n%s\nthe store has\n%s", listed, tables)
	}
}

// Guarantee: every column of texts compares by bytes, whatever the collation of the database is.
func TestTextsCompareByBytes(t *testing.T) {
	db := fresh(t)
	err := db.view(t.Context(), db.readers, func(r *readTx) error {
		list, err := r.Texts(t.Context(), "list columns", `SELECT c.relname || '.' || a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
			WHERE c.relkind IN ('r', 'p') AND c.relnamespace = current_schema()::regnamespace AND a.attnum > 0 AND c.relname <> 'goose_db_version'
			AND a.attcollation NOT IN (0, (SELECT oid FROM pg_collation WHERE collname = 'C' AND collnamespace = 'pg_catalog'::regnamespace)) ORDER BY 1`)
		if len(list) > 0 {
			t.Errorf("these columns have another collation: %v", list)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
