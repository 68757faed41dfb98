package stats

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// Table is a table with column headings. The first column is aligned left, the
// others right.
type Table struct {
	Columns []string
	rows    [][]string
}

// Add adds a row. Missing cells are empty.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// String returns the table in Markdown, with aligned columns.
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

// Replace returns document with the text between the lines "<!-- name -->" and
// "<!-- /name -->" replaced. Each line must occur once, in this order.
func Replace(document []byte, name, text string) ([]byte, error) {
	begin, end := []byte("<!-- "+name+" -->\n"), []byte("<!-- /"+name+" -->\n")
	head, rest, found := bytes.Cut(document, begin)
	_, tail, closed := bytes.Cut(rest, end)
	if !found || !closed || bytes.Contains(tail, begin) || bytes.Contains(tail, end) {
		return nil, fmt.Errorf("the document must contain the line %q and after it the line %q, once each", begin, end)
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
