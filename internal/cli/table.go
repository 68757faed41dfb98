package cli

import (
	"bufio"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"
)

// column is a column of a table.
type column struct {
	name  string
	rank  int  // 0: always shown; else, the columns of the highest rank are left out first if a table is too wide
	flex  bool // its cells may be shortened
	state bool // its cells are states, shown in colours
	least int  // width at least, in a table whose rows are written as they come
}

// Widths to which flexible columns are shortened: to comfort while other columns can be left
// out, to tight if none can.
const (
	comfort = 16
	tight   = 8
	gap     = 2 // between columns

	unlimited = 1 << 30
)

// table writes rows as aligned columns. It fits the width of the terminal, if it has one.
type table struct {
	out     io.Writer
	columns []column
	headers bool
	colours bool
	width   int  // 0: unlimited
	stream  bool // rows come later, too

	rows   [][]string
	widths []int // of the columns; -1 for one that is left out; nil until the first flush
}

// newTable returns a table on standard output. Its head is left out if --no-headers is set.
func (a *app) newTable(columns ...column) *table {
	t := &table{out: a.Out, columns: columns, headers: !a.noHeaders, colours: a.colours(a.Out, a.colour)}
	if a.fitted() {
		t.width = a.System.width(a.Out)
	}
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = clean(c)
	}
	t.rows = append(t.rows, cells)
}

// flush writes the rows. The first flush decides the widths of the columns, and writes the
// head.
func (t *table) flush() error {
	w := bufio.NewWriter(t.out)
	if t.widths == nil {
		t.layOut()
		if t.headers {
			names := make([]string, len(t.columns))
			for i := range t.columns {
				names[i] = t.columns[i].name
			}
			t.line(w, names, func(int, string) style { return bold })
		}
	}
	for _, cells := range t.rows {
		t.line(w, cells, t.styleOf)
	}
	t.rows = nil
	return w.Flush()
}

func (t *table) styleOf(i int, cell string) style {
	if !t.columns[i].state {
		return ""
	}
	return styleOfState(cell)
}

func (t *table) line(w io.Writer, cells []string, styleOf func(i int, cell string) style) {
	var b strings.Builder
	pad := 0
	for i, cell := range cells {
		if t.widths[i] < 0 {
			continue
		}
		b.WriteString(strings.Repeat(" ", pad))
		text := cell
		if t.width > 0 {
			text = shorten(cell, t.widths[i])
		}
		b.WriteString(styleOf(i, cell).paint(t.colours, text))
		pad = max(0, t.widths[i]-textWidth(text)) + gap
	}
	_, _ = io.WriteString(w, strings.TrimRight(b.String(), " ")+"\n") // flush reports a failed write
}

// layOut decides the widths of the columns from the rows so far.
func (t *table) layOut() {
	natural := make([]int, len(t.columns))
	empty := make([]bool, len(t.columns))
	for i := range t.columns {
		empty[i] = len(t.rows) > 0
		if t.stream {
			natural[i], empty[i] = t.columns[i].least, false
		}
		if t.headers {
			natural[i] = max(natural[i], textWidth(t.columns[i].name))
		}
		for _, cells := range t.rows {
			natural[i] = max(natural[i], textWidth(cells[i]))
			empty[i] = empty[i] && (cells[i] == "-" || cells[i] == " ")
		}
	}
	t.widths = natural
	if t.width == 0 {
		return
	}
	for t.excess(unlimited) > 0 && t.leaveOut(func(i int) bool { return empty[i] }) {
	}
	for t.excess(comfort) > 0 && t.leaveOut(func(int) bool { return true }) {
	}
	t.shrink(tight)
	t.clip()
}

// excess returns by how much the table is too wide if its flexible columns are shortened
// to the width flexible.
func (t *table) excess(flexible int) int {
	total := -gap
	for i, w := range t.widths {
		switch {
		case w < 0:
			continue
		case t.columns[i].flex:
			w = min(w, flexible)
		}
		total += w + gap
	}
	return total - t.width
}

// leaveOut leaves out the least important of those columns that may be left out. It
// returns false if there is none.
func (t *table) leaveOut(may func(i int) bool) bool {
	least, rank := -1, 0
	for i := range t.columns {
		if r := t.columns[i].rank; t.widths[i] >= 0 && r > rank && may(i) {
			least, rank = i, r
		}
	}
	if least < 0 {
		return false
	}
	t.widths[least] = -1
	return true
}

// shrink shortens flexible columns, the widest first, until the table fits or all have the
// width to.
func (t *table) shrink(to int) {
	for excess := t.excess(unlimited); excess > 0; excess-- {
		widest := -1
		for i, w := range t.widths {
			if t.columns[i].flex && w > to && (widest < 0 || w > t.widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		t.widths[widest]--
	}
}

// clip shortens the last columns, whatever they hold, until the table fits.
func (t *table) clip() {
	for i := len(t.widths) - 1; i >= 0; i-- {
		excess := t.excess(unlimited)
		if excess <= 0 {
			return
		}
		if t.widths[i] < 0 {
			continue
		}
		if t.widths[i] -= excess; t.widths[i] < 1 {
			t.widths[i] = 1
		}
		if i > 0 && t.widths[i] == 1 {
			t.widths[i] = -1
		}
	}
}

// measure returns what counts the cells of text on a terminal, whatever the locale: East
// Asian characters are two wide.
func measure() *runewidth.Condition { return &runewidth.Condition{StrictEmojiNeutral: true} }

func textWidth(s string) int { return measure().StringWidth(s) }

// shorten returns s in at most width cells. Text that is left out is shown as an ellipsis.
func shorten(s string, width int) string {
	if textWidth(s) <= width {
		return s
	}
	return measure().Truncate(s, width, "…")
}
