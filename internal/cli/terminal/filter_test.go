package terminal

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

func filtering(ctx context.Context, t *testing.T, expr string) (*Console, *bytes.Buffer) {
	t.Helper()
	code, err := CompileFilter(expr)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	return &Console{Out: &b, Format: FormatJSON, Filter: code, Context: ctx}, &b
}

// Guarantee: a filter whose evaluation never ends stops when the command is cancelled.
func TestFilterEndsWithItsCommand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, _ := filtering(ctx, t, "last(repeat(1))")
	cancel()
	if err := c.PrintData(1); !errors.Is(err, context.Canceled) {
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
	c, _ := filtering(t.Context(), t, "repeat(1)")
	c.Out = &failingWriter{1 << 20}
	if err := c.PrintData(1); err == nil || !strings.Contains(err.Error(), "closed pipe") {
		t.Errorf("got %v, want the error of the writer", err)
	}
}
