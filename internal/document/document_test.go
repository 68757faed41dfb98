package document_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// show returns a node and its positions as text, for comparison.
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

// Guarantee: the same text parses to the same nodes and positions as JSON and as YAML.
func TestJSONAndYAMLParseAlike(t *testing.T) {
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
		t.Errorf("got as JSON:\n%s\nas YAML:\n%s\nwant the same", show(fromJSON), show(fromYAML))
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
        3:9 null ""
        3:15 a string ""
  4:3 "c"
    4:8 a mapping ""
      4:9 "d\né"
        4:22 a string "x\ty"
`
	if got := show(fromJSON); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// Guarantee: aliases and merge keys follow YAML, and an alias has the position at which it
// is used.
func TestAliasesAndMergeKeys(t *testing.T) {
	n, err := document.Parse([]byte("base: &b {x: 1, y: 2}\none: *b\ntwo:\n  <<: *b\n  y: 3\nthree:\n  <<: [{z: 0}, *b]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if one := n.Member("one"); one.Line != 2 || one.Member("y").Text != "2" {
		t.Errorf("got alias\n%s\nwant it on line 2, with y: 2", show(one))
	}
	if two := n.Member("two"); two.Member("y").Text != "3" || two.Member("x").Text != "1" || two.Member("<<") != nil {
		t.Errorf("got merged mapping\n%s\nwant its own y: 3, the merged x: 1 and no <<", show(two))
	}
	if three := n.Member("three"); len(three.Nodes) != 3 || three.Member("z").Text != "0" {
		t.Errorf("got mapping merged from a list\n%s\nwant three members, with z: 0", show(three))
	}
}

// Guarantee: a text that cannot be parsed, or could be parsed in two ways, is rejected with
// the position of the problem.
func TestInvalidTextsAreRejected(t *testing.T) {
	for _, c := range []struct{ text, position, message string }{
		{"", "line 1, column 1", "empty"},
		{"\ufeff \n", "line 1, column 1", "empty"},
		{"# nothing\n", "line 1, column 1", "empty"},
		{"a: 1\nb: \xff\n", "line 2, column 4", "0xff"},
		{"\xff\xfea\x00", "line 1, column 1", "UTF-16"},
		{"a: x\x00y\n", "line 1, column 5", "U+0000"},
		{"a: b: c\n", "line 1, column 5", "must be in quotes"},
		{"a:\n\t- b\n", "line 2, column 1", "a tab"},
		{"a: [1, 2\nb: c\n", "line 2, column 2", "close the bracket of line 1, column 4 with ]"},
		{"a: *x\n", "line 1, column 4", "unknown anchor"},
		{"a: 1\nb: 2\na: 3\n", "line 3, column 1", `"a" is a duplicate`},
		{"200: x\n\"200\": y\n", "line 2, column 1", `"200" is a duplicate`},
		{"a: 1\n---\nb: 2\n", "line 2, column 1", "second document"},
		{"[a, b]: 1\n", "line 1, column 1", "must be a string"},
		{"a: &x [*x]\n", "line 1, column 8", "inside its own anchor"},
		{"a:\n  <<: 3\n", "line 2, column 7", "must have a mapping"},
		{"{\n  \"a\": 1,\n  \"a\": 2}", "line 3, column 3", `"a" is a duplicate`},
		{"{\"a\": 1,\n \"b\" 2}", "line 2, column 6", "a colon is missing"},
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
			t.Errorf("%.40q: got %v, want a validation error", c.text, err)
			continue
		}
		if !strings.HasPrefix(f.Message, c.position+": ") || !strings.Contains(f.Message, c.message) {
			t.Errorf("%.40q: got %q, want %q at %s", c.text, f.Message, c.message, c.position)
		}
	}
}

// Guarantee: a name within braces may end in ?, as in the fields of a cost (plans.md, section 5), and positions are those of the
// text. Texts with ?: stay as they are, and another mistake is reported as without such names.
func TestNamesThatEndInAQuestionMark(t *testing.T) {
	const text = "note: |\n  why?: because\njson: {a.b: 1, c?: -0.5, d|e?: \"f?:\", g: {h?: [x?, y]}}\n"
	n, err := document.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if note := n.Member("note"); note.Text != "why?: because\n" {
		t.Errorf("got the text %q, want it unchanged", note.Text)
	}
	fields := n.Member("json")
	for i, want := range []string{"a.b 3:8 1", "c? 3:16 -0.5", "d|e? 3:26 f?:", "g 3:39 "} {
		if m := fields.Nodes[i]; fmt.Sprintf("%s %d:%d %s", m.Name, m.NamePosition.Line, m.NamePosition.Column, m.Text) != want {
			t.Errorf("got the member %+v, want %s", m, want)
		}
	}
	if h := fields.Nodes[3].Member("h?"); h == nil || len(h.Nodes) != 2 || h.Nodes[0].Text != "x?" {
		t.Errorf("got %+v, want a member h? with a list", fields.Nodes[3])
	}
	_, err = document.Parse([]byte("json: {c?: 1}\nb: [1\n"))
	if err == nil {
		t.Error("a bracket that is not closed is no mistake")
	}
}

// Guarantee: any text within the maximum size of a request parses, or fails with a validation
// error, within a few seconds.
func TestHostileTextsAreBounded(t *testing.T) {
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
		"optional names":     fill("{", "a?: b,", "}"),
		"JSON":               fill("[", "0,", "0]"),
		"broken JSON":        fill("{\"a\":[", "0,", "x"),
		"names":              fill("", "a: b\n", ""),
		"an open quote":      fill("a: \"", "b\n", ""),
		"comments":           fill("a:\n", "# b\n", "  b: c\n"),
		"line comments":      fill("a:\n", " - b # c\n", ""),
		"questions":          fill("", "? a\n", ""),
		"tags":               fill("- ", "!a ", ""),
		"directives":         fill("", "%YAML 1.2\n", ""),
		"conflicts":          fill("a: b: c\n", "=======\r", ""),
		"open strings":       fill("{\"a\": [", "\"\\\"", "x"),
		"typographic quotes": fill("{", "“", ""),
		"folds":              fill("a: >\n", "  b\n\n", ""),
	} {
		t.Run(name, func(t *testing.T) {
			start := proctest.CPUTime(t)
			_, err := document.Parse([]byte(text))
			if took := proctest.CPUTime(t) - start; took > 20*time.Second {
				t.Errorf("parsing took %s of CPU time, want at most 20s", took)
			}
			if err != nil && fault.CodeOf(err) != fault.ValidationFailed {
				t.Errorf("got %v, want a validation error or none", err)
			}
		})
	}
}

// FuzzParse looks for a text that makes Parse panic, or return a node or an error without a
// position.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"a: &x {b: [1, 'c']}\nd: *x\n<<: *x\n", `{"a": [1, "b\n", null]}`, "? a\n: - b\n", "a: |\n  b\n", "%YAML 1.1\n---\n!!str a: >-\n b\n", "- &a a\n- &b [*a]\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		n, err := document.Parse(content)
		if err == nil {
			if n.Line < 1 || n.Column < 1 {
				t.Fatalf("got %+v, want a position", n)
			}
			return
		}
		var line, column int
		var bad *fault.Error
		if !errors.As(err, &bad) {
			t.Fatalf("got %v, want a validation error", err)
		}
		if _, err := fmt.Sscanf(bad.Message, "line %d, column %d: ", &line, &column); err != nil || line < 1 || column < 1 {
			t.Fatalf("got %q, want a position", bad.Message)
		}
	})
}
