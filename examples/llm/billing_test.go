package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// line returns a usage record as the export writes it.
func line(id, owner, meter string, units int64) string {
	return fmt.Sprintf(`{"usage_id":%q,"owner":%q,"meter":%q,"units":%d,"requests":1,"state":"final"}`+"\n", id, owner, meter, units)
}

// Guarantee: each usage record is billed once: if an export repeats it, if an export fails, and if a round was killed after the
// export or before it removed the batch.
func TestRecordsAreBilledOnce(t *testing.T) {
	next, failure, exports := "", error(nil), 0
	b := &billing{dir: t.TempDir(), export: func(_ context.Context, _, file string) error {
		exports++
		if failure != nil {
			return failure
		}
		return os.WriteFile(file, []byte(next), 0o600)
	}}
	round := func(batch string, fails error, want ...string) {
		t.Helper()
		next, failure = batch, fails
		if err := b.round(t.Context()); !errors.Is(err, fails) {
			t.Fatalf("got the error %v, want %v", err, fails)
		}
		got, err := b.invoices()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got the bills %q, want %q", got, want)
		}
	}
	left := func(batch string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(b.dir, "batch.jsonl"), []byte(batch), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first := line("1", "search", "tokens", 1000) + line("2", "support", "tokens", 334)
	round("", nil)
	round(first, nil, "search: 1000 tokens, $0.03", "support: 334 tokens, $0.02")
	round(first+line("3", "search", "tokens", 99_001), nil, "search: 100001 tokens, $3.01", "support: 334 tokens, $0.02")
	round("", errors.ErrUnsupported, "search: 100001 tokens, $3.01", "support: 334 tokens, $0.02")

	left(line("4", "support", "tokens", 666)) // killed after the export
	before := exports
	round(line("5", "search", "requests", 7), nil, "search: 100001 tokens, $3.01", "support: 1000 tokens, $0.03")
	if exports != before+1 {
		t.Errorf("got %d exports, want one after the batch that was left", exports-before)
	}
	left(line("4", "support", "tokens", 666)) // killed before it was removed
	round("", nil, "search: 100001 tokens, $3.01", "support: 1000 tokens, $0.03")

	left(strings.Repeat("x", 3))
	if err := b.round(t.Context()); err == nil {
		t.Error("a batch that is no usage record was taken")
	}
}
