package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

func (a *app) checkOutput() error {
	switch a.output {
	case "table", "json", "yaml":
		return nil
	default:
		return usagef("-o must be table, json or yaml, not %q", a.output)
	}
}

// field is one line of a record shown as a table.
type field struct {
	name  string
	value string
}

// printRecord writes one record in the format that -o names. fields returns what a
// table shows.
func (a *app) printRecord(record any, fields func() []field) error {
	if a.output != "table" {
		return a.printData(record)
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	for _, f := range fields() {
		fmt.Fprintf(w, "%s\t%s\n", f.name, clean(f.value))
	}
	return w.Flush()
}

// printData writes data as JSON or YAML.
func (a *app) printData(data any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(data); err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	if a.output == "yaml" {
		// Convert the JSON, so that both formats have the same fields.
		var node yaml.Node
		if err := yaml.Unmarshal(b.Bytes(), &node); err != nil {
			return fmt.Errorf("encode the output: %w", err)
		}
		plain(&node)
		out, err := yaml.Marshal(&node)
		if err != nil {
			return fmt.Errorf("encode the output: %w", err)
		}
		b.Reset()
		b.Write(out)
	}
	_, err := a.Out.Write(b.Bytes())
	return err
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

// table writes a list as aligned columns.
type table struct {
	w *tabwriter.Writer
}

// newTable returns a table on standard output. It begins with head, unless --no-headers is
// set.
func (a *app) newTable(head ...string) *table {
	t := &table{tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)}
	if !a.noHeaders {
		t.row(head...)
	}
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = clean(c)
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

// printList writes the records of a list, at most limit of them if limit is above 0.
// A table has the header head and one row for each record.
func printList[T any](a *app, limit int, records func(func(T, error) bool), head []string, row func(*T) []string) error {
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
	if a.output != "table" {
		return a.printData(all)
	}
	t := a.newTable(head...)
	for i := range all {
		t.row(row(&all[i])...)
	}
	return t.w.Flush()
}

// clean makes text from a server safe to print on a terminal: it replaces characters
// that are not printable, such as escape sequences and line ends. An empty string
// becomes a dash.
func clean(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// str returns *p as a string, or "" if p is nil.
func str[T ~string](p *T) string {
	if p == nil {
		return ""
	}
	return string(*p)
}

// moment formats *p in UTC; nil is "".
func moment(p *time.Time) string {
	if p == nil {
		return ""
	}
	return p.UTC().Format(time.RFC3339)
}
