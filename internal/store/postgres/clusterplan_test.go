package postgres

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/snapshot"
)

// Guarantee: PostgreSQL compiles no statement that every node sends many times a second: it compiles from an
// estimated cost of 100,000 on (jit_above_cost), again for each execution, which takes longer than everything
// else. This holds in a new database, where tables that have one row have no statistics yet.
func TestFrequentStatementsAreNotCompiled(t *testing.T) {
	db := fresh(t)
	p := snapshot.Position{Number: 1}
	for name, c := range map[string]struct {
		statement string
		args      []any
	}{
		"change log": {logStatement, []any{p.Number, p.Mark[:], 1000}},
		"leases":     {viewStatement, []any{[]int64{p.Number}, [][]byte{p.Mark[:]}}},
	} {
		rows, err := db.writer.Query(t.Context(), `EXPLAIN `+c.statement, append([]any{pgx.QueryExecModeSimpleProtocol}, c.args...)...)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		var cost float64
		if m := regexp.MustCompile(`cost=[\d.]+\.\.([\d.]+)`).FindStringSubmatch(plan[0]); m != nil {
			cost, _ = strconv.ParseFloat(m[1], 64)
		}
		if cost == 0 || cost > 50_000 {
			text := ""
			for _, line := range plan {
				text += fmt.Sprintln(line)
			}
			t.Errorf("%s: the estimated cost is %.0f, want at most 50000:\n%s", name, cost, text)
		}
	}
}
