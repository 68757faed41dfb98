package manual

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/keygate/keygate/docs"
)

// every calls f for each block of blocks, and for those in them.
func every(blocks []Block, f func(Block)) {
	for _, b := range blocks {
		f(b)
		every(b.Blocks, f)
		for _, item := range b.Items {
			every(item, f)
		}
	}
}

// spansOf returns all spans of a block.
func spansOf(b Block) (all []Span) {
	all = append(all, b.Spans...)
	for _, row := range b.Rows {
		for _, cell := range row {
			all = append(all, cell...)
		}
	}
	return all
}

// Guarantee: every page of the directory docs is in the manual, with its title, and every link to
// another page leads to a page and heading that the manual has.
func TestManualHasEveryPage(t *testing.T) {
	m, err := parse(docs.Pages)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) < 30 || len(m.Pages) != len(files) {
		t.Fatalf("got %d pages of %d files, %v", len(m.Pages), len(files), err)
	}
	anchors := map[string]bool{}
	for _, p := range m.Pages {
		anchors[p.Name+"#"] = true
		every(p.Blocks, func(b Block) {
			if b.Kind == Heading {
				anchors[p.Name+"#"+b.Anchor] = true
			}
		})
		if p.Title == "" || len(p.Blocks) == 0 {
			t.Errorf("%s has the title %q and %d blocks", p.Name, p.Title, len(p.Blocks))
		}
	}
	links := 0
	for _, p := range m.Pages {
		every(p.Blocks, func(b Block) {
			for _, s := range spansOf(b) {
				if s.Page != "" {
					if links++; !anchors[s.Page+"#"+s.Anchor] {
						t.Errorf("%s: the link %q leads to %s#%s, which does not exist", p.Name, s.Text, s.Page, s.Anchor)
					}
				}
				if s.URL != "" && !strings.HasPrefix(s.URL, "https://") {
					t.Errorf("%s: the link %q has the address %s", p.Name, s.Text, s.URL)
				}
			}
		})
	}
	if links < 100 {
		t.Errorf("found %d links between pages, want at least 100", links)
	}
}

// Guarantee: a link to a file that the manual does not have leads to the repository, where the file is.
func TestLinksOutOfTheManualLeadToFiles(t *testing.T) {
	found := 0
	for _, p := range Read().Pages {
		every(p.Blocks, func(b Block) {
			for _, s := range spansOf(b) {
				file, ok := strings.CutPrefix(s.URL, Repository)
				if !ok {
					continue
				}
				found++
				file, _, _ = strings.Cut(file, "#")
				if _, err := os.Stat("../../" + file); err != nil {
					t.Errorf("%s: %v", p.Name, err)
				}
			}
		})
	}
	if found < 10 {
		t.Errorf("found %d links to files, want at least 10", found)
	}
}

// Guarantee: HTML of a page is not part of it, whether it is a block, a comment or within a line, and a
// link with another scheme than https is text.
func TestHTMLAndSchemesAreLeftOut(t *testing.T) {
	const source = "# T\n\n<script>one()</script>\n\n<!-- run:\ntwo\n-->\nA <b onclick=\"three()\">word</b> and `<i>`.\n\n" +
		"[a](javascript:four()) [b](data:text/html,five) [c](http://six.example) <mailto:seven@example.com>\n"
	m, err := parse(fstest.MapFS{"t.md": {Data: []byte(source)}})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{"script", "one()", "two", "three", "four", "data:", "six"} {
		if strings.Contains(string(encoded), out) {
			t.Errorf("got %s, which has %s", encoded, out)
		}
	}
	if got := Plain(m.Pages[0].Blocks[0].Spans); got != "A word and <i>." {
		t.Errorf("got %q", got)
	}
	every(m.Pages[0].Blocks, func(b Block) {
		for _, s := range b.Spans {
			if s.URL != "" {
				t.Errorf("%q is a link to %s", s.Text, s.URL)
			}
		}
	})
}

// Guarantee: each kind of block has its text, styles and links.
func TestBlocks(t *testing.T) {
	const source = "# The title\n\n## A *b* `c`\n\n## A b c\n\nOne\n**two** [three](b.md#x) [four](#a-b-c) [five](../LICENSE) \\* &amp;\n\n" +
		"```sh not-run\nls\n```\n\n1. a\n2. b\n\n> q\n\n| H |\n|---|\n| `x\\|y` |\n"
	m, err := parse(fstest.MapFS{"a.md": {Data: []byte(source)}, "b.md": {Data: []byte("# B\n")}})
	if err != nil {
		t.Fatal(err)
	}
	word := func(s string) []Block { return []Block{{Kind: Paragraph, Spans: []Span{{Text: s}}}} }
	want := Page{Name: "a", Title: "The title", Blocks: []Block{
		{Kind: Heading, Level: 2, Anchor: "a-b-c", Spans: []Span{{Text: "A "}, {Text: "b", Emphasis: true}, {Text: " "}, {Text: "c", Code: true}}},
		{Kind: Heading, Level: 2, Anchor: "a-b-c-1", Spans: []Span{{Text: "A b c"}}},
		{Kind: Paragraph, Spans: []Span{
			{Text: "One "}, {Text: "two", Strong: true}, {Text: " "}, {Text: "three", Page: "b", Anchor: "x"}, {Text: " "},
			{Text: "four", Page: "a", Anchor: "a-b-c"}, {Text: " "}, {Text: "five", URL: Repository + "LICENSE"}, {Text: " * &"},
		}},
		{Kind: Code, Language: "sh", Text: "ls\n"},
		{Kind: List, Ordered: true, Items: [][]Block{word("a"), word("b")}},
		{Kind: Quote, Blocks: word("q")},
		{Kind: Table, Rows: [][][]Span{{{{Text: "H"}}}, {{{Text: "x|y", Code: true}}}}},
	}}
	if !reflect.DeepEqual(m.Pages[0], want) {
		t.Errorf("got  %+v\nwant %+v", m.Pages[0], want)
	}
}
