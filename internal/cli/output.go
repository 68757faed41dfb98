package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// The formats of -o.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatID    = "id"
	formatName  = "name"
)

// identity names the fields of a command's records that -o id and -o name print; "" if the
// records have no such field.
type identity struct{ id, name string }

// identityOf returns the identity of the records of the command with this path. A command
// that is not listed has that of its group.
func identityOf(path string) identity {
	switch path {
	case "keygate account create", "keygate accounts":
		return identity{"account_id", "name"}
	case "keygate keys", "keygate account key":
		return identity{"key_id", "name"}
	case "keygate gateways":
		return identity{"gateway_id", "name"}
	case "keygate routes":
		return identity{"route_id", ""}
	case "keygate spec revisions":
		return identity{"revision_id", ""}
	case "keygate webhooks":
		return identity{"webhook_id", ""}
	case "keygate deliveries", "keygate webhooks test":
		return identity{"delivery_id", ""}
	case "keygate events", "keygate webhooks listen":
		return identity{"id", ""}
	case "keygate audit-log", "keygate explain":
		return identity{"request_id", ""}
	case "keygate context list":
		return identity{"", "name"}
	case "", "keygate audit-log export", "keygate audit-log head", "keygate audit-log verify", "keygate keys verify",
		"keygate webhooks recover", "keygate webhooks verify", "keygate doctor":
		return identity{}
	default:
		return identityOf(path[:max(0, strings.LastIndexByte(path, ' '))])
	}
}

// checkOutput checks the flags that control the output of c.
func (a *app) checkOutput(c *cobra.Command) error {
	switch a.colour {
	case colourAuto, colourAlways, colourNever:
	default:
		return usagef("--color must be auto, always or never, not %q", a.colour)
	}
	if err := a.readFilter(c); err != nil {
		return err
	}
	has := identityOf(c.CommandPath())
	switch a.output {
	case formatTable, formatWide, formatJSON, formatYAML:
		return nil
	case formatID:
		a.printed = has.id
		if has.id == "" {
			return usagef("the output of %s has no identifiers: -o id cannot be used with it", c.CommandPath())
		}
	case formatName:
		a.printed = has.name
		if has.name == "" {
			return usagef("the output of %s has no names: -o name cannot be used with it", c.CommandPath())
		}
	case formatMarkdown:
		if !hasMarkdown(c.CommandPath()) {
			return usagef("-o markdown is for keygate config diff and keygate spec push --dry-run: use table, wide, json, yaml, id or name")
		}
	default:
		return usagef("-o must be table, wide, json, yaml, id or name, not %q", a.output)
	}
	return nil
}

// forPeople reports whether the output is for people, not for programs.
func (a *app) forPeople() bool { return a.output == formatTable || a.output == formatWide }

// field is one line of a record shown as a table.
type field struct {
	name  string
	value string
}

// printRecord writes one record in the format that -o names. fields returns what a
// table shows.
func (a *app) printRecord(record any, fields func() []field) error {
	if !a.forPeople() {
		return a.printData(record)
	}
	colours, lines, longest, width := a.colours(a.Out, a.colour), fields(), 0, 0
	if a.fitted() {
		width = a.width(a.Out)
	}
	for _, f := range lines {
		longest = max(longest, textWidth(f.name))
	}
	var b strings.Builder
	for _, f := range lines {
		head, value := f.name+strings.Repeat(" ", longest-textWidth(f.name)+gap), clean(f.value)
		if f.name == "STATE" {
			value = styleOfState(value).paint(colours, value)
		} else {
			value = strings.TrimPrefix(fold(head+value, width, textWidth(head)), head)
		}
		b.WriteString(bold.paint(colours, f.name) + strings.TrimPrefix(head, f.name) + value + "\n")
	}
	_, err := io.WriteString(a.Out, b.String())
	return err
}

// printData writes a record or a list of records for programs.
func (a *app) printData(data any) error { return a.printIndented(data, "  ") }

// printLine writes one of the records of a list that grows. JSON is on one line.
func (a *app) printLine(record any) error { return a.printIndented(record, "") }

func (a *app) printIndented(data any, indent string) error {
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
	case a.jqCode != nil:
		return a.printFiltered(out)
	case a.output == formatYAML:
		out, err = toYAML(out)
	case a.output == formatID, a.output == formatName:
		out, err = a.pick(out)
	case a.width(a.Out) > 0:
		out = escapeControls(out)
	}
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	_, err = a.Out.Write(out)
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
func (a *app) pick(data []byte) ([]byte, error) {
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
		if err := json.Unmarshal(r[a.printed], &value); err == nil && value != "" {
			b.WriteString(clean(value) + "\n")
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

// listing says how a list is shown as a table.
type listing[T any] struct {
	columns []column
	row     func(*T) []string
	empty   string // said on standard error if the list is empty
	next    string // said on standard error of a terminal after other lists; "" says nothing
}

// printList writes the records of a list, at most limit of them if limit is above 0.
func printList[T any](a *app, limit int, records func(func(T, error) bool), l listing[T]) error {
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
	if !a.forPeople() {
		return a.printData(all)
	}
	if len(all) == 0 {
		a.say("%s", l.empty)
		return nil
	}
	t := a.newTable(l.columns...)
	for i := range all {
		t.row(l.row(&all[i])...)
	}
	if err := t.flush(); err != nil || l.next == "" || !a.fitted() {
		return err
	}
	a.say("%s", l.next)
	return nil
}

// noneMatch returns what to say about an empty list: that nothing matches if c was given
// flags that select records, else that there is nothing, with what to do next. Flags in
// except do not select.
func noneMatch(c *cobra.Command, what, next string, except ...string) string {
	selects := false
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		selects = selects || f.Changed && f.Name != "limit" && !slices.Contains(except, f.Name)
	})
	if selects {
		return "No " + what + " match."
	}
	return strings.TrimSpace("No " + what + ". " + next)
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

// escapeControls makes JSON safe to print on a terminal and valid in YAML: characters that
// are not printable, which it may have in strings, become escapes. None beyond U+FFFF
// matters to either.
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

// fitted reports whether tables fit the width of a terminal.
func (a *app) fitted() bool { return a.output == formatTable && a.width(a.Out) > 0 }

// when formats *p for a cell of a table: relative to now on a terminal, in full for wide
// tables and programs. nil is "".
func (a *app) when(p *time.Time) string {
	if p == nil || !a.fitted() {
		return moment(p)
	}
	return relative(time.Until(*p))
}

// relative formats a time from now as people say it, such as "3m ago" or "in 6d".
func relative(d time.Duration) string {
	const day = 24 * time.Hour
	past := d < 0
	var text string
	switch d = d.Abs(); {
	case d < 2*time.Second:
		return "now"
	case d < 2*time.Minute:
		text = fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		text = fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		text = fmt.Sprintf("%dh", d/time.Hour)
	case d < 2*365*day:
		text = fmt.Sprintf("%dd", d/day)
	default:
		text = fmt.Sprintf("%dy", d/(365*day))
	}
	if past {
		return text + " ago"
	}
	return "in " + text
}
