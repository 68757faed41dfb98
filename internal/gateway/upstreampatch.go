package gateway

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// UpstreamPatch changes an upstream of a gateway, or describes a new one: it is an entry of upstreams in a configuration
// file, and what a call gives. Of the embedded Patch it uses the settings of UpstreamSettings, under the names of the
// members for upstream_…; an absent member keeps the setting, and null restores its default.
type UpstreamPatch struct {
	Name string // never ""
	Patch
}

// Put sets the setting s, a row of UpstreamSettings, to v, as Setting.Put does.
func (p *UpstreamPatch) Put(s *Setting, v any) { s.Put(&p.Patch, v) }

// upstreamNames returns the names of the fields of an upstream.
func upstreamNames(rows []Setting) string {
	names := make([]string, len(rows)+1)
	names[0] = "name"
	for i := range rows {
		names[i+1] = rows[i].Name
	}
	return strings.Join(names, ", ")
}

// readUpstreams reads the list of upstreams of a configuration file.
func readUpstreams(n *document.Node, field string) (m Member[[]UpstreamPatch], err error) {
	m.Present = true
	switch n.Kind {
	case document.Null:
		m.Null = true
		return m, nil
	case document.Sequence:
	default:
		return m, n.Mismatch(field, document.Sequence, "a list such as [{name: next, targets: [{url: https://next.internal}]}]")
	}
	var problems document.Problems
	rows := UpstreamSettings()
	for i := range n.Nodes {
		var p UpstreamPatch
		problems.Add(p.read(&n.Nodes[i], fmt.Sprintf("%s[%d]", field, i), rows))
		if m.Value = append(m.Value, p); problems.Full() {
			return m, problems.Err()
		}
	}
	problems.Add(withPosition(CheckUpstreamNames(m.Value), n, field))
	return m, problems.Err()
}

// CheckUpstreamNames checks the names of upstreams that are given together: each is given once, and there are not too
// many. Errors are validation errors of the list or of an item of it.
func CheckUpstreamNames(list []UpstreamPatch) error {
	var problems []error
	others := 0
	for i := range list {
		name := list[i].Name
		if name != DefaultUpstream {
			others++
		}
		if name != "" && slices.ContainsFunc(list[:i], func(p UpstreamPatch) bool { return p.Name == name }) {
			problems = append(problems, fault.Invalid(fmt.Sprintf("[%d].name", i), "is a duplicate: the upstream %s is given above already", name))
		}
	}
	if others >= MaxUpstreams {
		problems = append(problems, fault.Invalid("", "must not have more than %d upstreams, the one with the name %s included", MaxUpstreams, DefaultUpstream))
	}
	return fault.Join(problems...)
}

func (p *UpstreamPatch) read(n *document.Node, field string, rows []Setting) error {
	return n.EachMember(field, func(m *document.Node) (err error) {
		if m.Name == "name" {
			if p.Name, err = m.ReadText(field + ".name"); err != nil {
				return err
			}
			return withPosition(CheckUpstreamName(p.Name), n, field)
		}
		s := findSetting(rows, m.Name)
		if s == nil {
			return m.Unknown(field+"."+m.Name, "is not a field of an upstream: use %s", upstreamNames(rows))
		}
		return s.values.read(s, &p.Patch, field, n, m)
	}, func() error {
		if n.Member("name") == nil && !n.HasLike("name") {
			return n.Invalid(field+".name", "is missing: name the upstream, with %s for that of routes that name none", DefaultUpstream)
		}
		return nil
	})
}

// encodeUpstreams writes the member upstreams of the section "gateway".
func encodeUpstreams(b *bytes.Buffer, m *Member[[]UpstreamPatch]) {
	switch {
	case !m.Present:
		return
	case len(m.Value) == 0:
		b.WriteString("  upstreams: []\n")
		return
	}
	b.WriteString("  upstreams:\n")
	rows := UpstreamSettings()
	for i := range m.Value {
		var entry bytes.Buffer
		for _, s := range rows {
			s.values.encode(s.Name, &entry, &m.Value[i].Patch)
		}
		b.WriteString("    - name: " + document.Scalar(m.Value[i].Name) + "\n")
		for line := range bytes.Lines(entry.Bytes()) {
			b.WriteString("    ")
			b.Write(line)
		}
	}
}

// exportUpstreams sets p.Upstreams to the upstreams of g that the other settings do not describe. If the default one is among
// them, its targets take the place of upstream_url.
func (p *Patch) exportUpstreams(g *Gateway) {
	var list []UpstreamPatch
	rows := UpstreamSettings()
	for u := range g.AllUpstreams {
		entry := UpstreamPatch{Name: u.FullName()}
		alone := g.Alone(u)
		for _, s := range rows {
			if u.Name != "" || !s.isOfGateway() {
				s.values.export(&entry.Patch, alone)
			}
		}
		switch {
		case u.Name != "":
		case !u.isMore():
			continue
		default:
			p.UpstreamURL = Member[string]{}
		}
		list = append(list, entry)
	}
	if list != nil {
		p.Upstreams = Member[[]UpstreamPatch]{Present: true, Value: list}
	}
}

// isOfGateway reports whether a row of UpstreamSettings is a setting of the gateway too, for its default upstream.
func (s *Setting) isOfGateway() bool {
	switch s.Name {
	case "targets", "balance", "hash_on", "ejection", "retries", "health", "refresh":
		return false
	}
	return true
}

// GatewaySetting returns the name of the setting of the gateway that is the row of UpstreamSettings for the default upstream;
// "" if there is none.
func (s *Setting) GatewaySetting() string {
	switch {
	case !s.isOfGateway():
		return ""
	case s.Name == "timeout":
		return s.Name
	}
	return upstreamPrefix + s.Name
}

func upstreamsSchema() schema {
	properties := schema{"name": schema{"type": "string", "pattern": `^([a-z0-9_-]+|.*\$\{env:.*)$`, "maxLength": maxUpstreamName, "description": "Name of the upstream, 1 to 64 characters of a-z, 0-9, - and _. default is that of routes that name none."}}
	for _, s := range UpstreamSettings() {
		field := s.values.schema()
		if !s.NotNull {
			if field = orNull(field); s.Kind == KindEjection {
				field["type"] = []any{"object", "boolean", "null"}
			}
		}
		field["description"] = s.Doc.File
		properties[s.Name] = field
	}
	return orNull(schema{
		"type": "array", "maxItems": MaxUpstreams,
		"items":       schema{"type": "object", "additionalProperties": false, "required": []any{"name"}, "properties": properties},
		"description": "Upstreams of the gateway, beside the one that upstream_url describes, or with the name default in its place. They are all that the gateway has: others are removed. Absent keeps those in force.",
		"examples":    []any{[]any{schema{"name": "next", "targets": []any{schema{"url": "https://orders-next.internal"}}}}},
	})
}
