package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func tableText(t *testing.T, tab *Table, rows ...[]string) string {
	t.Helper()
	var b bytes.Buffer
	tab.out = &b
	for _, r := range rows {
		tab.Row(r...)
	}
	if err := tab.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Guarantee: a table leaves out its least important columns, empty ones first, and shortens
// flexible ones, until it fits the terminal. Columns of rank 0 that are not flexible are
// whole as long as there is room for them.
func TestTableFitsItsWidth(t *testing.T) {
	columns := []Column{{Name: "ID"}, {Name: "NAME", Flex: true}, {Name: "A", Rank: 1}, {Name: "B", Rank: 2}, {Name: "EMPTY", Rank: 1}}
	row := []string{"id_0123456789", strings.Repeat("n", 30), "aaaa", "bbbb", ""}
	for width, want := range map[int]string{
		0:  "id_0123456789  nnnnnnnnnnnnnnnnnnnnnnnnnnnnnn  aaaa  bbbb  -",
		80: "id_0123456789  nnnnnnnnnnnnnnnnnnnnnnnnnnnnnn  aaaa  bbbb  -",
		57: "id_0123456789  nnnnnnnnnnnnnnnnnnnnnnnnnnnnnn  aaaa  bbbb",
		50: "id_0123456789  nnnnnnnnnnnnnnnnnnnnnn…  aaaa  bbbb",
		40: "id_0123456789  nnnnnnnnnnnnnnnnnn…  aaaa",
		25: "id_0123456789  nnnnnnnnn…",
		20: "id_0123456789  nnnn…",
		10: "id_012345…",
	} {
		got := tableText(t, &Table{columns: columns, width: width}, row)
		if got != want+"\n" {
			t.Errorf("width %d: got\n%s\nwant\n%s", width, got, want)
		}
	}
}

// Guarantee: for every width, no line of a table is wider than the terminal.
func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	columns := []Column{{Name: "IDENTIFIER"}, {Name: "NAME", Flex: true}, {Name: "STATE", State: true}, {Name: "OWNER", Rank: 3, Flex: true}, {Name: "LAST USED", Rank: 1}}
	for width := 1; width < 100; width++ {
		text := tableText(t, &Table{columns: columns, width: width, headers: true},
			[]string{"key_01j0000000000000000000000000", "日本語の名前の長いもの", "active", "owner", "3m ago"},
			[]string{"key_01j0000000000000000000000001", "n", "revoked", "", ""})
		for line := range strings.Lines(text) {
			if n := TextWidth(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("width %d: a line of %d cells: %q", width, n, line)
			}
		}
	}
}

// Guarantee: columns are aligned on the screen behind characters that are two cells wide.
func TestColumnsAlignBehindWideCharacters(t *testing.T) {
	got := tableText(t, &Table{columns: []Column{{Name: "NAME"}, {Name: "STATE"}}, headers: true}, []string{"東京", "active"}, []string{"ä", "active"})
	want := "NAME  STATE\n東京  active\nä     active\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Guarantee: colours are around the text of cells, not their padding, and only states that
// mean something have one.
func TestColoursAreAroundTheText(t *testing.T) {
	got := tableText(t, &Table{columns: []Column{{Name: "STATE", State: true}, {Name: "N"}}, headers: true, colours: true},
		[]string{"active", "1"}, []string{"revoked", "2"}, []string{"strange", "3"})
	want := "\x1b[1mSTATE\x1b[0m    \x1b[1mN\x1b[0m\n\x1b[32mactive\x1b[0m   1\n\x1b[31mrevoked\x1b[0m  2\nstrange  3\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Guarantee: rows that come later have the columns of the first ones.
func TestLaterRowsKeepTheColumns(t *testing.T) {
	tab := &Table{columns: []Column{{Name: "A", Least: 5}, {Name: "B"}}, width: 12, stream: true}
	got := tableText(t, tab, []string{"a", "bbb"}) + tableText(t, tab, []string{"aa", "bbbbbbb"}) + tableText(t, tab, []string{"aaaaaaaa", "b"})
	if want := "a      bbb\naa     bb…\naaaa…  b\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Guarantee: relative times use one unit and say whether they are past.
func TestRelativeTimes(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0: "now", -time.Second: "now", -30 * time.Second: "30s ago", 90 * time.Second: "in 90s", -3 * time.Minute: "3m ago",
		-47 * time.Hour: "47h ago", 6 * day: "in 6d", -400 * day: "400d ago", 30 * 365 * day: "in 30y",
	} {
		if got := Relative(d); got != want {
			t.Errorf("Relative(%v) = %q, want %q", d, got, want)
		}
	}
}

// Guarantee: long messages break between words, at the width of a terminal, and nowhere
// without one.
func TestFoldBreaksBetweenWords(t *testing.T) {
	for _, c := range []struct {
		text   string
		width  int
		indent int
		want   string
	}{
		{"one two three", 0, 0, "one two three"},
		{"one two three", 13, 0, "one two three"},
		{"one two three", 8, 0, "one two\nthree"},
		{"one two three", 7, 2, "one two\n  three"},
		{"name: one two\nlongers words", 9, 6, "name: one\n      two\nlongers\n      words"},
		{"onetwothree", 4, 0, "onetwothree"},
		{"a onetwothree b", 4, 0, "a\nonetwothree b"},
	} {
		if got := Fold(c.text, c.width, c.indent); got != c.want {
			t.Errorf("Fold(%q, %d, %d) = %q, want %q", c.text, c.width, c.indent, got, c.want)
		}
	}
}
