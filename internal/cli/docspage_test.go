package cli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/manual"
)

// withoutCode returns blocks without code, which is never folded.
func withoutCode(blocks []manual.Block) (kept []manual.Block) {
	for _, b := range blocks {
		if b.Kind == manual.Code {
			continue
		}
		b.Blocks = withoutCode(b.Blocks)
		items := b.Items
		b.Items = nil
		for _, item := range items {
			b.Items = append(b.Items, withoutCode(item))
		}
		kept = append(kept, b)
	}
	return kept
}

// Guarantee: a page of the documentation fits the width of the terminal. Only code, which can be pasted, and
// single words outside of tables are wider.
func TestPagesFitTheTerminal(t *testing.T) {
	escape := regexp.MustCompile(`\x1b\[\d+m`)
	for _, width := range []int{60, 80, 120} {
		for _, page := range manual.Read().Pages {
			page.Blocks = withoutCode(page.Blocks)
			var plain, coloured bytes.Buffer
			if err := writePage(&plain, &page, width, false); err != nil {
				t.Fatal(err)
			}
			if err := writePage(&coloured, &page, width, true); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(plain.String()) {
				line = strings.TrimRight(line, "\n")
				word := strings.TrimLeft(line, " -0123456789.")
				if terminal.TextWidth(line) > width && strings.Contains(word, " ") {
					t.Errorf("%s at %d columns: a line has %d: %q", page.Name, width, terminal.TextWidth(line), line)
				}
			}
			if strings.Contains(plain.String(), "\x1b") {
				t.Errorf("%s: the plain text has codes for colours", page.Name)
			}
			words := func(text string) string {
				return strings.Join(strings.FieldsFunc(escape.ReplaceAllString(text, ""), func(r rune) bool {
					return strings.ContainsRune(" \n-=", r)
				}), " ")
			}
			if words(coloured.String()) != words(plain.String()) {
				t.Errorf("%s: the coloured page has other words than the plain page", page.Name)
			}
		}
	}
}

// Guarantee: the parts of a page look like this.
func TestPageAsText(t *testing.T) {
	text := func(s string) []manual.Span { return []manual.Span{{Text: s}} }
	paragraph := func(s string) []manual.Block { return []manual.Block{{Kind: manual.Paragraph, Spans: text(s)}} }
	page := manual.Page{Name: "page", Title: "A page", Blocks: []manual.Block{
		{Kind: manual.Paragraph, Spans: []manual.Span{
			{Text: "Some words, "}, {Text: "code", Code: true}, {Text: ", a "}, {Text: "link", URL: "https://a.example"},
			{Text: " and "}, {Text: "a page", Page: "other"}, {Text: "."},
		}},
		{Kind: manual.Heading, Level: 2, Spans: text("A heading")},
		{Kind: manual.Code, Language: "sh", Text: "keygate docs a-page-with-a-name-that-is-longer-than-a-line\n  second\n"},
		{Kind: manual.List, Items: [][]manual.Block{paragraph("one item that is longer than a line"), paragraph("two")}},
		{Kind: manual.List, Ordered: true, Items: [][]manual.Block{append(paragraph("first"), manual.Block{Kind: manual.Code, Text: "ls\n"})}},
		{Kind: manual.Table, Rows: [][][]manual.Span{{text("Name"), text("Meaning")}, {text("a"), text("a cell that is folded since it is long")}, {text("b"), nil}}},
	}}
	const want = `A page
======

Some words, code, a link
(https://a.example) and a page.

A heading
---------

    keygate docs a-page-with-a-name-that-is-longer-than-a-line
      second

- one item that is longer than a
  line
- two

1. first

       ls

Name  Meaning
----------------------------------
a     a cell that is folded since
      it is long

b

Pages named here: other
`
	var got bytes.Buffer
	if err := writePage(&got, &page, 34, false); err != nil || got.String() != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got.String(), want)
	}
}
