package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// Guarantee: of a list that grows, each record is filtered by itself.
func TestEachRecordOfAGrowingListIsFiltered(t *testing.T) {
	filter, err := terminal.CompileFilter(`select(.outcome != "success") | .path, .method`)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	log := &auditLog{app: &app{Console: &terminal.Console{Out: &b, Format: terminal.FormatJSON, Filter: filter, Context: t.Context()}}}
	entries := []client.AuditEntry{{Outcome: "success", Path: "/a", Method: "GET"}, {Outcome: "key_invalid", Path: "/b", Method: "PUT"}}
	if err := log.show(entries, nil); err != nil {
		t.Fatal(err)
	}
	if want := "/b\nPUT\n"; b.String() != want {
		t.Errorf("got %q, want %q", &b, want)
	}
}

// Guarantee: a mistake in an expression is a usage error that shows its position.
func TestMistakesInExpressionsHaveAPosition(t *testing.T) {
	for expr, want := range map[string]string{
		".[":             "line 1, column 3",
		".a |\n  bad(":   "line 2, column 7",
		`"ä" | nothing`:  "line 1, column 7",
		"$x":             "line 1, column 1",
		`. as {a: $x} |`: "line 1, column 15",
		"":               "--jq is empty",
	} {
		var out, said bytes.Buffer
		s := &System{Out: &out, Err: &said, Env: func(string) (string, bool) { return "", false }}
		if got := Run(t.Context(), s, []string{"version", "--jq", expr}); got != exitUsage || !strings.Contains(said.String(), want) {
			t.Errorf("%q: got exit status %d and %q, want %d with %q", expr, got, &said, exitUsage, want)
		}
	}
}
