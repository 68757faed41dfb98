package document_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// show writes a node with its places, for comparison.
func show(n *document.Node) string {
	var b strings.Builder
	var walk func(n *document.Node, indent string)
	walk = func(n *document.Node, indent string) {
		fmt.Fprintf(&b, "%s%d:%d %s %q\n", indent, n.Line, n.Column, n.Kind, n.Text)
		for i := range n.Nodes {
			if m := &n.Nodes[i]; n.Kind == document.Mapping {
				fmt.Fprintf(&b, "%s  %d:%d %q\n", indent, m.NamePosition.Line, m.NamePosition.Column, m.Name)
			}
			walk(&n.Nodes[i], indent+"    ")
		}
	}
	walk(n, "")
	return b.String()
}

// Guarantee: JSON and YAML of the same shape give the same nodes, at the same places.
func TestBothNotations(t *testing.T) {
	const text = "\ufeff{\n  \"é\": \"€\", \"b\": [1, -2.5e3, true,\n false, null, \"\"],\n  \"c\": {\"d\\n\\u00e9\": \"x\\ty\"}}\n"
	fromJSON, err := document.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	// A comment makes it YAML.
	fromYAML, err := document.Parse([]byte(text + "# end\n"))
	if err != nil {
		t.Fatal(err)
	}
	if show(fromJSON) != show(fromYAML) {
		t.Errorf("JSON:\n%s\nYAML:\n%s", show(fromJSON), show(fromYAML))
	}
	want := `1:1 a mapping ""
  2:3 "é"
    2:8 a string "€"
  2:13 "b"
    2:18 a list ""
        2:19 a number "1"
        2:22 a number "-2.5e3"
        2:30 a boolean "true"
        3:2 a boolean "false"
        3:9 a null ""
        3:15 a string ""
  4:3 "c"
    4:8 a mapping ""
      4:9 "d\né"
        4:22 a string "x\ty"
`
	if got := show(fromJSON); got != strings.ReplaceAll(want, "a null", "null") {
		t.Errorf("got:\n%s", got)
	}
}

// Guarantee: aliases and merge keys mean what YAML says, and stand where they
// are used.
func TestAliases(t *testing.T) {
	n, err := document.Parse([]byte("base: &b {x: 1, y: 2}\none: *b\ntwo:\n  <<: *b\n  y: 3\nthree:\n  <<: [{z: 0}, *b]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if one := n.Member("one"); one.Line != 2 || one.Member("y").Text != "2" {
		t.Errorf("one: %s", show(one))
	}
	if two := n.Member("two"); two.Member("y").Text != "3" || two.Member("x").Text != "1" || two.Member("<<") != nil {
		t.Errorf("two: %s", show(two))
	}
	if three := n.Member("three"); len(three.Nodes) != 3 || three.Member("z").Text != "0" {
		t.Errorf("three: %s", show(three))
	}
}

// Guarantee: what cannot be read, or could be read in two ways, is an error with its place.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ text, place, message string }{
		{"", "line 1, column 1", "empty"},
		{"\ufeff \n", "line 1, column 1", "empty"},
		{"# nothing\n", "line 1, column 1", "empty"},
		{"a: 1\nb: \xff\n", "line 2, column 4", "0xff"},
		{"\xff\xfea\x00", "line 1, column 1", "UTF-16"},
		{"a: x\x00y\n", "line 1, column 5", "U+0000"},
		{"a: b: c\n", "line 1, column 5", "mapping values"},
		{"a:\n\t- b\n", "line 2, column 1", "cannot start"},
		{"a: [1, 2\nb: c\n", "line 2, column 2", "did not find expected ',' or ']'"},
		{"a: *x\n", "line 1, column 4", "unknown anchor"},
		{"a: 1\nb: 2\na: 3\n", "line 3, column 1", `"a" is a duplicate`},
		{"200: x\n\"200\": y\n", "line 2, column 1", `"200" is a duplicate`},
		{"a: 1\n---\nb: 2\n", "line 2, column 1", "second document"},
		{"[a, b]: 1\n", "line 1, column 1", "must be a string"},
		{"a: &x [*x]\n", "line 1, column 8", "inside its own anchor"},
		{"a:\n  <<: 3\n", "line 2, column 7", "must have a mapping"},
		{"{\n  \"a\": 1,\n  \"a\": 2}", "line 3, column 3", `"a" is a duplicate`},
		{"{\"a\": 1,\n \"b\" 2}", "line 2, column 6", "expecting ':'"},
		{"{\"a\": 1", "line 1, column 8", "ends too early"},
		{"{\"a\":", "line 1, column 6", "ends too early"},
		{"{", "line 1, column 2", "ends too early"},
		{"{\"a\": \"\\ud800\"}", "line 1, column 8", "surrogate"},
		{"{\"a\": 1}\n{}", "line 2, column 1", "after the end"},
		{strings.Repeat("[", 1002) + strings.Repeat("]", 1002), "line 1, column 1001", "deeper than 1000"},
		{strings.Repeat("- ", 1002) + "a", "line 1, column 2003", "deeper than 1000"},
	} {
		_, err := document.Parse([]byte(c.text))
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.ValidationFailed {
			t.Errorf("%.40q: got %v", c.text, err)
			continue
		}
		if !strings.HasPrefix(f.Message, c.place+": ") || !strings.Contains(f.Message, c.message) {
			t.Errorf("%.40q: got %q, want %q at %s", c.text, f.Message, c.message, c.place)
		}
	}
}

// Guarantee: a text within the size of a request costs no more than a few
// seconds and a few hundred megabytes, whatever it holds.
func TestHostileTexts(t *testing.T) {
	fill := func(before, unit, after string) string {
		return before + strings.Repeat(unit, (hostileSize-len(before)-len(after))/len(unit)) + after
	}
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	var deep strings.Builder
	deep.WriteString("a0: &a0 x\n")
	for i := 1; i < 10_000; i++ {
		fmt.Fprintf(&deep, "a%d: &a%d\n- *a%d\n", i, i, i-1)
	}
	for name, text := range map[string]string{
		"aliases":            bomb.String(),
		"a chain of aliases": deep.String(),
		"flow":               fill("[", "a,", "]"),
		"block":              fill("", "- a\n", ""),
		"mappings":           fill("{", "a: b,", "}"),
		"JSON":               fill("[", "0,", "0]"),
		"broken JSON":        fill("{\"a\":[", "0,", "x"),
		"names":              fill("", "a: b\n", ""),
		"an open quote":      fill("a: \"", "b\n", ""),
		"comments":           fill("a:\n", "# b\n", "  b: c\n"),
		"line comments":      fill("a:\n", " - b # c\n", ""),
		"questions":          fill("", "? a\n", ""),
		"tags":               fill("- ", "!a ", ""),
		"folds":              fill("a: >\n", "  b\n\n", ""),
	} {
		t.Run(name, func(t *testing.T) {
			begun := processorTime(t)
			_, err := document.Parse([]byte(text))
			if took := processorTime(t) - begun; took > 20*time.Second {
				t.Errorf("took %s of the processor", took)
			}
			if err != nil && fault.CodeOf(err) != fault.ValidationFailed {
				t.Error(err)
			}
		})
	}
}

// processorTime returns how long this process has run so far: what others run
// meanwhile is not in it.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// FuzzParse looks for a text that makes Parse panic or give an error without a place.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"a: &x {b: [1, 'c']}\nd: *x\n<<: *x\n", `{"a": [1, "b\n", null]}`, "? a\n: - b\n", "a: |\n  b\n", "%YAML 1.1\n---\n!!str a: >-\n b\n", "- &a a\n- &b [*a]\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		n, err := document.Parse(content)
		if err == nil {
			if n.Line < 1 || n.Column < 1 {
				t.Fatalf("no place: %+v", n)
			}
			return
		}
		var line, column int
		var bad *fault.Error
		if !errors.As(err, &bad) {
			t.Fatalf("not a validation error: %v", err)
		}
		if _, err := fmt.Sscanf(bad.Message, "line %d, column %d: ", &line, &column); err != nil || line < 1 || column < 1 {
			t.Fatalf("no place: %q", bad.Message)
		}
	})
}
