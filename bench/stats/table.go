// Package table writes the tables of benchmarks in Markdown and keeps them in a
// document.
package stats

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// Table is a heading of columns and rows of as many cells. The first column
// is aligned left, the others right.
type Table struct {
	Columns []string
	rows    [][]string
}

// Add adds a row. Cells that are missing stay empty.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// String returns the table in Markdown, its columns aligned.
func (t *Table) String() string {
	width := make([]int, len(t.Columns))
	for _, row := range append([][]string{t.Columns}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell), 3)
		}
	}
	var b strings.Builder
	line := func(cell func(i int) string) {
		for i := range t.Columns {
			b.WriteString("| " + cell(i) + " ")
		}
		b.WriteString("|\n")
	}
	rule := func(i int) string {
		if i == 0 {
			return strings.Repeat("-", width[i])
		}
		return strings.Repeat("-", width[i]-1) + ":"
	}
	text := func(row []string) func(int) string {
		return func(i int) string {
			cell := ""
			if i < len(row) {
				cell = row[i]
			}
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				return cell + pad
			}
			return pad + cell
		}
	}
	line(text(t.Columns))
	line(rule)
	for _, row := range t.rows {
		line(text(row))
	}
	return b.String()
}

// Replace returns document with text between the lines "<!-- name -->" and
// "<!-- /name -->", which must stand there once each, in this order.
func Replace(document []byte, name, text string) ([]byte, error) {
	begin, end := []byte("<!-- "+name+" -->\n"), []byte("<!-- /"+name+" -->\n")
	head, rest, found := bytes.Cut(document, begin)
	_, tail, closed := bytes.Cut(rest, end)
	if !found || !closed || bytes.Contains(tail, begin) || bytes.Contains(tail, end) {
		return nil, fmt.Errorf("the document must have the line %q and then the line %q, once each", begin, end)
	}
	return bytes.Join([][]byte{head, begin, []byte(text), end, tail}, nil), nil
}

// ReplaceIn is Replace for the document in a file.
func ReplaceIn(file, name, text string) error {
	document, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if document, err = Replace(document, name, text); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, document, 0o644) //nolint:gosec // a document for everybody
}
