package stats_test

import (
	"testing"

	"github.com/keygate/keygate/bench/stats"
)

// Guarantee: cells are aligned with their columns, whatever characters they contain.
func TestCellsAreAligned(t *testing.T) {
	tab := stats.Table{Columns: []string{"Proxy", "CPU µs"}}
	tab.Add("nginx", "13.0")
	tab.Add("Keygate")
	want := "| Proxy   | CPU µs |\n| ------- | -----: |\n| nginx   |   13.0 |\n| Keygate |        |\n"
	if got := tab.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Guarantee: only the text between the two markers changes, and a document without
// them is refused.
func TestReplaceChangesOnlyTheMarkedText(t *testing.T) {
	got, err := stats.Replace([]byte("a\n<!-- x -->\nold\n<!-- /x -->\nb\n"), "x", "new\n")
	if want := "a\n<!-- x -->\nnew\n<!-- /x -->\nb\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for _, bad := range []string{"", "<!-- x -->\n", "<!-- /x -->\n<!-- x -->\n", "<!-- x -->\n<!-- /x -->\n<!-- x -->\n<!-- /x -->\n"} {
		if got, err := stats.Replace([]byte(bad), "x", "new\n"); err == nil {
			t.Errorf("%q became %q; want an error", bad, got)
		}
	}
}
