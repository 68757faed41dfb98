package sqlite_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Guarantee: docs/limits.md has a row for each table of the store, with its bound or that there is
// none, and names no other table.
func TestEveryTableHasABound(t *testing.T) {
	page, err := os.ReadFile("../../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## What the store keeps\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var listed []string
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.TrimSpace(cells[2]) == "" || strings.TrimSpace(cells[3]) == "" {
			continue
		}
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
			listed = append(listed, name[1])
		}
	}
	// Without the tables of SQLite itself, of an index of texts, and of the migrations.
	const query = `SELECT group_concat(name, ' ') FROM (SELECT name FROM pragma_table_list
		WHERE schema = 'main' AND type <> 'shadow' AND type <> 'view' AND name NOT LIKE 'sqlite~_%' ESCAPE '~' AND name <> 'goose_db_version' ORDER BY name)`
	var tables string
	if err := raw(t, made(t)).QueryRowContext(t.Context(), query).Scan(&tables); err != nil {
		t.Fatal(err)
	}
	slices.Sort(listed)
	if got := strings.Join(listed, " "); got != tables {
		t.Errorf("docs/limits.md lists the tables\n%s\nthe store has\n%s", got, tables)
	}
}
