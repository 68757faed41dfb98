package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
)

func filtering(ctx context.Context, t *testing.T, expr string) (*app, *bytes.Buffer) {
	t.Helper()
	code, err := compileFilter(expr)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	return &app{System: &System{Out: &b}, output: formatJSON, jqCode: code, ctx: ctx}, &b
}

// Guarantee: a filter whose evaluation never ends stops when the command is cancelled.
func TestFilterEndsWithItsCommand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a, _ := filtering(ctx, t, "last(repeat(1))")
	cancel()
	if err := a.printData(1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// failingWriter fails after some bytes, as a closed pipe does.
type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errors.New("closed pipe")
	}
	return len(p), nil
}

// Guarantee: results are written as they come, so endless results end with the reader.
func TestEndlessResultsEndWithTheirReader(t *testing.T) {
	a, _ := filtering(t.Context(), t, "repeat(1)")
	a.Out = &failingWriter{1 << 20}
	if err := a.printData(1); err == nil || !strings.Contains(err.Error(), "closed pipe") {
		t.Errorf("got %v, want the error of the writer", err)
	}
}

// Guarantee: of a list that grows, each record is filtered by itself.
func TestEachRecordOfAGrowingListIsFiltered(t *testing.T) {
	a, b := filtering(t.Context(), t, `select(.outcome != "success") | .path, .method`)
	log := &auditLog{app: a}
	entries := []client.AuditEntry{{Outcome: "success", Path: "/a", Method: "GET"}, {Outcome: "key_invalid", Path: "/b", Method: "PUT"}}
	if err := log.show(entries, nil); err != nil {
		t.Fatal(err)
	}
	if want := "/b\nPUT\n"; b.String() != want {
		t.Errorf("got %q, want %q", b, want)
	}
}

// Guarantee: a mistake in an expression is a usage error that shows its place.
func TestMistakesInExpressionsHaveAPlace(t *testing.T) {
	for expr, want := range map[string]string{
		".[":             "line 1, column 3",
		".a |\n  bad(":   "line 2, column 7",
		`"ä" | nothing`:  "line 1, column 7",
		"$x":             "line 1, column 1",
		`. as {a: $x} |`: "line 1, column 15",
		"":               "--jq is empty",
	} {
		_, err := compileFilter(expr)
		var usage *usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want a usage error with %q", expr, err, want)
		}
	}
}
