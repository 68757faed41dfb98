package cli

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/manual"
)

// columnGap is the number of spaces between the columns of a table.
const columnGap = 2

// pageWriter prints a page of the manual.
type pageWriter struct {
	w        *bufio.Writer
	coloured bool
}

// writePage prints a page, folded to width columns. Code is never folded, so that it can be pasted.
func writePage(w io.Writer, page *manual.Page, width int, coloured bool) error {
	p := pageWriter{w: bufio.NewWriter(w), coloured: coloured}
	p.line("", terminal.Bold.Paint(coloured, page.Title))
	if !coloured {
		p.line("", strings.Repeat("=", terminal.TextWidth(page.Title)))
	}
	p.line("", "")
	p.blocks(page.Blocks, "", "", width)
	if others := otherPages(page); len(others) > 0 {
		p.line("", "")
		p.paragraph([]manual.Span{{Text: "Pages named here: " + strings.Join(others, ", ")}}, "", "", width)
	}
	return p.w.Flush()
}

func (p pageWriter) line(indent, text string) {
	// The error of a write stays in the writer, and Flush returns it.
	_, _ = p.w.WriteString(strings.TrimRight(indent+text, " ") + "\n")
}

// blocks prints blocks with an empty line between them. The first line begins with first, others with rest.
func (p pageWriter) blocks(blocks []manual.Block, first, rest string, width int) {
	for i, b := range blocks {
		if i > 0 {
			p.line("", "")
			first = rest
		}
		p.block(b, first, rest, width)
	}
}

func (p pageWriter) block(b manual.Block, first, rest string, width int) {
	switch b.Kind {
	case manual.Heading:
		title := manual.Plain(b.Spans)
		if b.Level == 2 && !p.coloured {
			p.line(first, title)
			p.line(rest, strings.Repeat("-", terminal.TextWidth(title)))
			return
		}
		p.line(first, terminal.Bold.Paint(p.coloured, title))
	case manual.Paragraph:
		p.paragraph(b.Spans, first, rest, width)
	case manual.Code:
		for line := range strings.Lines(b.Text) {
			p.line(first, "    "+strings.TrimRight(line, "\n"))
			first = rest
		}
	case manual.List:
		p.list(b, first, rest, width)
	case manual.Table:
		p.table(b.Rows, rest, width)
	case manual.Quote:
		p.blocks(b.Blocks, first+"  ", rest+"  ", width)
	}
}

// list prints the items of a list, with an empty line between them if one has several parts.
func (p pageWriter) list(b manual.Block, first, rest string, width int) {
	loose := slices.ContainsFunc(b.Items, func(item []manual.Block) bool { return len(item) > 1 })
	for i, item := range b.Items {
		mark := "- "
		if b.Ordered {
			mark = strconv.Itoa(i+1) + ". "
		}
		if i > 0 {
			first = rest
			if loose {
				p.line("", "")
			}
		}
		p.blocks(item, first+mark, rest+strings.Repeat(" ", len(mark)), width)
	}
}

func (p pageWriter) paragraph(spans []manual.Span, first, rest string, width int) {
	for _, line := range p.fold(spans, width-terminal.TextWidth(rest), 0) {
		p.line(first, line)
		first = rest
	}
}

// table prints rows in columns. If the widest cells do not fit, cells are folded, and rows have an empty line
// between them.
func (p pageWriter) table(rows [][][]manual.Span, indent string, width int) {
	widths := columnWidths(rows, width-terminal.TextWidth(indent))
	folded := false
	for _, row := range rows[1:] {
		for i, cell := range row {
			folded = folded || len(p.fold(cell, widths[i], widths[i])) > 1
		}
	}
	for n, row := range rows {
		if n > 1 && folded {
			p.line("", "")
		}
		cells, height := make([][]string, len(row)), 1
		for i, cell := range row {
			cells[i] = p.fold(cell, widths[i], widths[i])
			height = max(height, len(cells[i]))
		}
		for at := range height {
			var b strings.Builder
			for i := range cells {
				text := ""
				if at < len(cells[i]) {
					text = cells[i][at]
				}
				b.WriteString(text + strings.Repeat(" ", max(widths[i]-visibleWidth(text), 0)+columnGap))
			}
			p.line(indent, b.String())
		}
		if n == 0 && slices.ContainsFunc(row, func(cell []manual.Span) bool { return len(cell) > 0 }) {
			total := columnGap * (len(widths) - 1)
			for _, w := range widths {
				total += w
			}
			p.line(indent, strings.Repeat("-", total))
		}
	}
}

// columnWidths returns the widths of the columns of a table, which together are at most width if that is
// possible: the widest columns become narrower, at first not below their longest words.
func columnWidths(rows [][][]manual.Span, width int) []int {
	widths, words := make([]int, len(rows[0])), make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			text := spanText(cell)
			widths[i] = max(widths[i], terminal.TextWidth(text), 1)
			for _, word := range strings.Fields(text) {
				words[i] = max(words[i], terminal.TextWidth(word))
			}
		}
	}
	excess := columnGap*(len(widths)-1) - width
	for _, w := range widths {
		excess += w
	}
	for _, least := range [][]int{words, make([]int, len(words))} {
		for ; excess > 0; excess-- {
			widest := -1
			for i, w := range widths {
				if w > max(least[i], 4) && (widest < 0 || w > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
		}
	}
	return widths
}

// fold returns the lines of a text, none of them wider than width. Words are cut that are wider than longest, if
// that is above 0; otherwise a wider word is a line of its own.
func (p pageWriter) fold(spans []manual.Span, width, longest int) (lines []string) {
	var line strings.Builder
	used := 0
	for _, word := range p.words(spans, longest) {
		w := visibleWidth(word)
		if used > 0 && used+1+w > width {
			lines = append(lines, line.String())
			line.Reset()
			used = 0
		}
		if used > 0 {
			line.WriteByte(' ')
			used++
		}
		line.WriteString(word)
		used += w
	}
	return append(lines, line.String())
}

// words returns the words of a text in their styles. If longest is above 0, wider words are cut into several.
func (p pageWriter) words(spans []manual.Span, longest int) (words []string) {
	open := 0 // width of the last word, if the next text continues it
	for _, s := range spans {
		for i, field := range strings.Split(spanText([]manual.Span{s}), " ") {
			if i > 0 {
				open = 0
			}
			for field != "" {
				part := field
				if longest > 0 {
					if open >= longest {
						open = 0
					}
					part = beginning(field, longest-open)
				}
				field = field[len(part):]
				if open > 0 {
					words[len(words)-1] += p.paint(s, part)
				} else {
					words = append(words, p.paint(s, part))
				}
				if open += terminal.TextWidth(part); field != "" {
					open = 0
				}
			}
		}
	}
	return words
}

// beginning returns what of text is at most width columns wide, but at least one character.
func beginning(text string, width int) string {
	used := 0
	for i, r := range text {
		if used += terminal.TextWidth(string(r)); used > width && i > 0 {
			return text[:i]
		}
	}
	return text
}

func (p pageWriter) paint(s manual.Span, text string) string {
	switch {
	case s.Strong:
		return terminal.Bold.Paint(p.coloured, text)
	case s.Code:
		return terminal.Green.Paint(p.coloured, text)
	}
	return text
}

// spanText returns the text of spans as it is printed: the address of a link follows its text.
func spanText(spans []manual.Span) string {
	var b strings.Builder
	for _, s := range spans {
		b.WriteString(s.Text)
		if s.URL != "" && s.URL != s.Text {
			b.WriteString(" (" + s.URL + ")")
		}
	}
	return b.String()
}

// visibleWidth is the width of a text without its codes for colours.
func visibleWidth(text string) int {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "\x1b[")
		b.WriteString(before)
		if !found {
			return terminal.TextWidth(b.String())
		}
		_, text, _ = strings.Cut(after, "m")
	}
}

// otherPages returns the names of the pages to which a page has links, in alphabetical order.
func otherPages(page *manual.Page) (names []string) {
	var walk func(blocks []manual.Block)
	add := func(spans []manual.Span) {
		for _, s := range spans {
			if s.Page != "" && s.Page != page.Name {
				names = append(names, s.Page)
			}
		}
	}
	walk = func(blocks []manual.Block) {
		for _, b := range blocks {
			add(b.Spans)
			for _, row := range b.Rows {
				for _, cell := range row {
					add(cell)
				}
			}
			walk(b.Blocks)
			for _, item := range b.Items {
				walk(item)
			}
		}
	}
	walk(page.Blocks)
	slices.Sort(names)
	return slices.Compact(names)
}
