package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// The formats of -o.
const (
	FormatTable = "table"
	FormatWide  = "wide"
	FormatJSON  = "json"
	FormatYAML  = "yaml"
	FormatID    = "id"
	FormatName  = "name"
)

// ForPeople reports whether the output is for people, not for programs.
func (c *Console) ForPeople() bool { return c.Format == FormatTable || c.Format == FormatWide }

// Field is one line of a record shown as a table: its name and its value.
type Field [2]string

// PrintRecord writes one record in the format that -o names. fields returns what a
// table shows.
func (c *Console) PrintRecord(record any, fields func() []Field) error {
	if !c.ForPeople() {
		return c.PrintData(record)
	}
	colours, lines, longest, width := c.Colours(c.Out), fields(), 0, 0
	if c.Fitted() {
		width = c.Width(c.Out)
	}
	for _, f := range lines {
		longest = max(longest, TextWidth(f[0]))
	}
	var b strings.Builder
	for _, f := range lines {
		head, value := f[0]+strings.Repeat(" ", longest-TextWidth(f[0])+Gap), Clean(f[1])
		if f[0] == "STATE" {
			value = styleOfState(value).Paint(colours, value)
		} else {
			value = strings.TrimPrefix(Fold(head+value, width, TextWidth(head)), head)
		}
		b.WriteString(Bold.Paint(colours, f[0]) + strings.TrimPrefix(head, f[0]) + value + "\n")
	}
	_, err := io.WriteString(c.Out, b.String())
	return err
}

// PrintData writes a record or a list of records for programs.
func (c *Console) PrintData(data any) error { return c.printIndented(data, "  ") }

// PrintLine writes one record of a list that grows. JSON is on one line.
func (c *Console) PrintLine(record any) error { return c.printIndented(record, "") }

func (c *Console) printIndented(data any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(data); err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	out := b.Bytes()
	var err error
	switch {
	case c.Filter != nil:
		return c.printFiltered(out)
	case c.Format == FormatYAML:
		out, err = toYAML(out)
	case c.Format == FormatID, c.Format == FormatName:
		out, err = c.pick(out)
	case c.Width(c.Out) > 0:
		out = escapeControls(out)
	}
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	_, err = c.Out.Write(out)
	return err
}

// toYAML converts JSON, so that both formats have the same fields.
func toYAML(data []byte) ([]byte, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(escapeControls(data), &node); err != nil {
		return nil, err
	}
	plain(&node)
	return yaml.Marshal(&node)
}

// pick returns the field that -o id or -o name prints: one line for each record of data
// that has it.
func (c *Console) pick(data []byte) ([]byte, error) {
	var records []map[string]json.RawMessage
	if !bytes.HasPrefix(data, []byte("[")) {
		data = slices.Concat([]byte("["), data, []byte("]"))
	}
	if err := json.Unmarshal(data, &records); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, r := range records {
		var value string
		if err := json.Unmarshal(r[c.Printed], &value); err == nil && value != "" {
			b.WriteString(Clean(value) + "\n")
		}
	}
	return b.Bytes(), nil
}

// plain removes JSON's braces and quotes where YAML does not need them.
func plain(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		n.Style = 0
	}
	if n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode {
		n.Style = 0
	}
	for _, c := range n.Content {
		plain(c)
	}
}

// Listing says how a list is shown as a table.
type Listing[T any] struct {
	Columns []Column
	Row     func(*T) []string
	Empty   string // said on standard error if the list is empty
	Next    string // said on standard error of a terminal after other lists; "" says nothing
}

// PrintList writes the records of a list, at most limit of them if limit is above 0.
func PrintList[T any](c *Console, limit int, records func(func(T, error) bool), l Listing[T]) error {
	all := []T{}
	for record, err := range records {
		if err != nil {
			return err
		}
		all = append(all, record)
		if limit > 0 && len(all) == limit {
			break
		}
	}
	if !c.ForPeople() {
		return c.PrintData(all)
	}
	if len(all) == 0 {
		c.Say("%s", l.Empty)
		return nil
	}
	t := c.NewTable(l.Columns...)
	for i := range all {
		t.Row(l.Row(&all[i])...)
	}
	if err := t.Flush(); err != nil || l.Next == "" || !c.Fitted() {
		return err
	}
	c.Say("%s", l.Next)
	return nil
}

// escapeControls makes JSON safe to print on a terminal and valid in YAML: characters in its
// strings that are not printable become escapes. Characters beyond U+FFFF are safe in both.
func escapeControls(data []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(data) {
		if r == '\n' || r > 0xffff || unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// Fitted reports whether tables fit the width of a terminal.
func (c *Console) Fitted() bool { return c.Format == FormatTable && c.Width(c.Out) > 0 }

// When formats *p for a cell of a table: relative to now on a terminal, in full for wide
// tables and programs. nil is "".
func (c *Console) When(p *time.Time) string {
	if p == nil || !c.Fitted() {
		return Moment(p)
	}
	return Relative(time.Until(*p))
}
