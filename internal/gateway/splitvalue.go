package gateway

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

func splitValue() valueType[Split] {
	return valueType[Split]{readSplitOnly, func(b *bytes.Buffer, s Split) { encodeSplit(b, s, "    ") }, splitSchema()}
}

func splitSchema() schema {
	e, w := &SplitEntry{}, &SplitWhen{}
	entry := schemaOf(e.parts(new(bool)), "upstream")
	when := schemaOf(w.parts())
	when["maxProperties"], when["minProperties"] = 1, 1
	properties, _ := entry["properties"].(schema)
	properties["when"] = orNull(withDescription(when, "The requests that go to the upstream. An entry has either this or a weight."))
	return schema{
		"type": "array", "maxItems": MaxSplitEntries, "items": entry,
		"examples": []any{[]any{
			schema{"upstream": "next", "when": schema{"header": schema{"X-Beta": "1"}}}, schema{"upstream": "next", "weight": 5},
		}},
	}
}

func withDescription(s schema, doc string) schema {
	s["description"] = doc
	return s
}

// parts returns the members of an entry in a file. sticky gets the value of that member.
func (e *SplitEntry) parts(sticky *bool) []part {
	return []part{
		textPart("upstream", &e.Upstream, schema{"type": "string", "pattern": `^([a-z0-9_-]+|.*\$\{env:.*)$`, "maxLength": maxUpstreamName, "description": "Name of the upstream that gets the requests."}),
		{"weight", func(m *document.Node, at string) error {
			if m.Kind != document.Number {
				return m.Mismatch(at, document.Number, "a percentage such as 5 or 0.25")
			}
			e.Weight = new(ParsePercent(m.Text))
			return nil
		}, orNull(schema{"type": "number", "minimum": 0, "maximum": 100, "description": "Share of the requests that go to the upstream, in percent, with at most 2 decimals. Only one entry may have it."})},
		boolPart("sticky", sticky, "Whether a caller stays on its side: its key, or its address without one. false sends any request of a caller there. Default: true."),
		boolPart("fallback", &e.Fallback, "Whether the other side serves while no target of a side takes part. Default: false."),
		{"when", func(m *document.Node, at string) error {
			e.When = &SplitWhen{}
			return readParts(m, at, "when", e.When.parts())
		}, schema{"type": []any{"object", "null"}}},
	}
}

func (w *SplitWhen) parts() []part {
	names := func(name string, to *[]string, doc, example string) part {
		return part{name, func(m *document.Node, at string) (err error) {
			if m.Kind != document.Sequence {
				return m.Mismatch(at, document.Sequence, "a list such as ["+example+"]")
			}
			*to, err = m.ReadTexts(at)
			if err == nil && *to == nil {
				*to = []string{}
			}
			return err
		}, schema{"type": "array", "minItems": 1, "maxItems": MaxSplitNames, "items": schema{"type": "string", "minLength": 1}, "description": doc}}
	}
	return []part{
		{"header", func(m *document.Node, at string) (err error) {
			w.Header, err = readHeaders(m, at)
			return err
		}, schema{
			"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": schema{"type": "string", "minLength": 1, "maxLength": MaxSplitHeaderValue},
			"description": "A header with its value. It is the caller's choice, and no access control.",
		}},
		names("key", &w.Key, "Identifiers of keys, each with the other keys of its rotations.", "key_01jz8y5c3te9b8r2m6q4v7x0dd"),
		names("owner", &w.Owner, "External IDs of the owners of keys.", "customer-42"),
	}
}

// ReadSplit reads the split of a route from a list in a document: nil for null. The error is a validation error with the
// positions.
func ReadSplit(n *document.Node, field string) (Split, error) {
	if n.Kind == document.Null {
		return nil, nil
	}
	s, err := readSplitOnly(n, field)
	if err != nil {
		return nil, err
	}
	return s, withPosition(s.Check(), n, field)
}

// SplitPositions returns where a split, which is valid, names its upstreams.
func SplitPositions(n *document.Node) []document.Position {
	at := make([]document.Position, len(n.Nodes))
	for i := range n.Nodes {
		at[i] = n.Nodes[i].Member("upstream").Position
	}
	return at
}

// readSplitOnly reads a split without checking it.
func readSplitOnly(n *document.Node, field string) (Split, error) {
	if n.Kind != document.Sequence {
		return nil, n.Mismatch(field, document.Sequence, "a list such as [{upstream: next, weight: 5}]")
	}
	var problems document.Problems
	list := make(Split, len(n.Nodes))
	for i := range n.Nodes {
		sticky := true
		problems.Add(readParts(&n.Nodes[i], fmt.Sprintf("%s[%d]", field, i), "an entry of split", list[i].parts(&sticky)))
		if list[i].Random = !sticky; problems.Full() {
			break
		}
	}
	return list, problems.Err()
}

// encodeSplit writes a split after its name, with the items at an indentation.
func encodeSplit(b *bytes.Buffer, s Split, indent string) {
	if len(s) == 0 {
		b.WriteString(" []\n")
		return
	}
	b.WriteByte('\n')
	for i := range s {
		b.WriteString(indent + "- " + s[i].encode() + "\n")
	}
}

// flowSplit returns a split in flow style.
func flowSplit(s Split) string {
	items := make([]string, len(s))
	for i := range s {
		items[i] = s[i].encode()
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func (e *SplitEntry) encode() string {
	text := "{upstream: " + document.Scalar(e.Upstream)
	if e.Weight != nil {
		text += ", weight: " + e.Weight.String()
	}
	if e.When != nil {
		text += ", when: {" + e.When.encode() + "}"
	}
	if e.Random {
		text += ", sticky: false"
	}
	if e.Fallback {
		text += ", fallback: true"
	}
	return text + "}"
}

func (w *SplitWhen) encode() string {
	switch {
	case w.Header != nil:
		var members []string
		for _, name := range slices.Sorted(maps.Keys(w.Header)) {
			members = append(members, inFlow(name)+": "+document.Quoted(w.Header[name]))
		}
		return "header: {" + strings.Join(members, ", ") + "}"
	case w.Key != nil:
		return "key: " + document.Flow(w.Key)
	default:
		return "owner: " + document.Flow(w.Owner)
	}
}
