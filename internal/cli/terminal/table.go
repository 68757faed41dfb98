package terminal

import (
	"bufio"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"
)

// Column is a column of a table.
type Column struct {
	Name  string
	Rank  int  // 0: always shown; otherwise, if a table is too wide, the columns of the highest rank are left out first
	Flex  bool // its cells may be shortened
	State bool // its cells are states, shown in colours
	Bar   bool // its cells are drawn by Gauge, for people: it is shown on terminals only
	Least int  // least width, in a table whose rows are written as they come
}

// Widths to which flexible columns are shortened: comfort while other columns can be left out,
// tight if none can.
const (
	comfort = 16
	tight   = 8
	Gap     = 2 // between columns

	unlimited = 1 << 30
)

// Table writes rows as aligned columns. It fits the width of the terminal, if it has one.
type Table struct {
	out     io.Writer
	columns []Column
	headers bool
	colours bool
	bars    bool // columns of bars are shown
	width   int  // 0: unlimited
	stream  bool // rows come later, too

	rows   [][]string
	widths []int // of the columns; -1 for one that is left out; nil until the first flush
}

// NewTable returns a table on standard output. Its head is left out if --no-headers is set.
func (c *Console) NewTable(columns ...Column) *Table {
	t := &Table{out: c.Out, columns: columns, headers: !c.NoHeaders, colours: c.Colours(c.Out), bars: c.Width(c.Out) > 0}
	if c.Fitted() {
		t.width = c.Width(c.Out)
	}
	return t
}

// NewStream returns a table whose rows are shown as they come.
func (c *Console) NewStream(columns ...Column) *Table {
	t := c.NewTable(columns...)
	t.stream = true
	return t
}

// Row adds a row, which Flush writes: a cell for each column.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = Clean(c)
	}
	t.rows = append(t.rows, cells)
}

// Flush writes the rows. The first flush decides the widths of the columns, and writes the
// head.
func (t *Table) Flush() error {
	w := bufio.NewWriter(t.out)
	if t.widths == nil {
		t.layOut()
		if t.headers {
			names := make([]string, len(t.columns))
			for i := range t.columns {
				names[i] = t.columns[i].Name
			}
			t.line(w, names, func(int, string) Style { return Bold })
		}
	}
	for _, cells := range t.rows {
		t.line(w, cells, t.styleOf)
	}
	t.rows = nil
	return w.Flush()
}

func (t *Table) styleOf(i int, cell string) Style {
	if !t.columns[i].State {
		return ""
	}
	return styleOfState(cell)
}

func (t *Table) line(w io.Writer, cells []string, styleOf func(i int, cell string) Style) {
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
		b.WriteString(styleOf(i, cell).Paint(t.colours, text))
		pad = max(0, t.widths[i]-TextWidth(text)) + Gap
	}
	_, _ = io.WriteString(w, strings.TrimRight(b.String(), " ")+"\n") // flush reports a failed write
}

// layOut decides the widths of the columns from the rows so far.
func (t *Table) layOut() {
	natural := make([]int, len(t.columns))
	empty := make([]bool, len(t.columns))
	for i := range t.columns {
		empty[i] = len(t.rows) > 0
		if t.stream {
			natural[i], empty[i] = t.columns[i].Least, false
		}
		if t.headers {
			natural[i] = max(natural[i], TextWidth(t.columns[i].Name))
		}
		for _, cells := range t.rows {
			natural[i] = max(natural[i], TextWidth(cells[i]))
			empty[i] = empty[i] && (cells[i] == "-" || cells[i] == " ")
		}
		if t.columns[i].Bar && !t.bars {
			natural[i] = -1
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
func (t *Table) excess(flexible int) int {
	total := -Gap
	for i, w := range t.widths {
		switch {
		case w < 0:
			continue
		case t.columns[i].Flex:
			w = min(w, flexible)
		}
		total += w + Gap
	}
	return total - t.width
}

// leaveOut leaves out the least important of the columns that may be left out. It returns false if
// there is none.
func (t *Table) leaveOut(may func(i int) bool) bool {
	least, rank := -1, 0
	for i := range t.columns {
		if r := t.columns[i].Rank; t.widths[i] >= 0 && r > rank && may(i) {
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
func (t *Table) shrink(to int) {
	for excess := t.excess(unlimited); excess > 0; excess-- {
		widest := -1
		for i, w := range t.widths {
			if t.columns[i].Flex && w > to && (widest < 0 || w > t.widths[widest]) {
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
func (t *Table) clip() {
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

// measure returns the rules by which text is measured in cells of a terminal. They do not depend on
// the locale: East Asian characters are two cells wide.
func measure() *runewidth.Condition { return &runewidth.Condition{StrictEmojiNeutral: true} }

// TextWidth returns the number of columns of a terminal that s takes.
func TextWidth(s string) int { return measure().StringWidth(s) }

// shorten returns s in at most width cells. Text that is left out is shown as an ellipsis.
func shorten(s string, width int) string {
	if TextWidth(s) <= width {
		return s
	}
	return measure().Truncate(s, width, "…")
}
