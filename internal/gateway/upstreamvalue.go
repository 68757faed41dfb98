package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// part is a member of an object in a configuration file: how it is read, and its schema.
type part struct {
	name   string
	read   func(m *document.Node, field string) error
	schema schema
}

// readParts reads the members of an object; what names it in errors. A member that is null is absent if it may be.
func readParts(n *document.Node, field, what string, parts []part) error {
	return n.EachMember(field, func(m *document.Node) error {
		at := field + "." + m.Name
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == m.Name })
		if i < 0 {
			names := make([]string, len(parts))
			for i := range parts {
				names[i] = parts[i].name
			}
			return m.Unknown(at, "is not a field of %s: use %s", what, strings.Join(names, ", "))
		}
		if _, isList := parts[i].schema["type"].([]any); isList && m.Kind == document.Null {
			return nil
		}
		return parts[i].read(m, at)
	})
}

// schemaOf returns the schema of an object with the parts.
func schemaOf(parts []part, required ...any) schema {
	properties := schema{}
	for _, p := range parts {
		properties[p.name] = p.schema
	}
	s := schema{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func textPart(name string, to *string, s schema) part {
	return part{name, func(m *document.Node, at string) (err error) {
		*to, err = m.ReadText(at)
		return err
	}, s}
}

func boolPart(name string, to *bool, doc string) part {
	return part{name, func(m *document.Node, at string) (err error) {
		*to, err = readBool(m, at)
		return err
	}, orNull(schema{"type": "boolean", "description": doc})}
}

func choicePart[T ~string](name string, to *T, choices []string, doc string) part {
	return part{name, func(m *document.Node, at string) error {
		text, err := m.ReadText(at)
		*to = T(text)
		return err
	}, orNull(schema{"type": "string", "enum": anyOf(choices), "description": doc})}
}

func anyOf(list []string) []any {
	all := make([]any, len(list))
	for i, s := range list {
		all[i] = s
	}
	return all
}

func countPart(name string, to *int, least, most int, doc string) part {
	return part{name, func(m *document.Node, at string) error {
		n, err := m.ReadCount(at)
		*to = int(min(max(n, math.MinInt32), math.MaxInt32)) // the check of the whole refuses both
		return err
	}, orNull(schema{"type": "integer", "minimum": least, "maximum": most, "description": doc})}
}

func onPart(to *[]string, least int, doc string) part {
	var items []any
	for _, s := range failures() {
		if items = append(items, s); isStatus(s) {
			items = append(items, json.Number(s))
		}
	}
	return part{"on", func(m *document.Node, at string) (err error) {
		*to, err = readOn(m, at)
		return err
	}, orNull(schema{"type": "array", "minItems": least, "uniqueItems": true, "items": schema{"enum": items}, "description": doc})}
}

// isStatus reports whether a kind of failure is a status, which a file may give as a number.
func isStatus(s string) bool { return strings.Trim(s, "0123456789") == "" }

func readOn(n *document.Node, field string) ([]string, error) {
	if n.Kind != document.Sequence {
		return nil, n.Mismatch(field, document.Sequence, "a list such as [connect, reset]")
	}
	var problems document.Problems
	list := make([]string, 0, len(n.Nodes))
	for i := range n.Nodes {
		m := &n.Nodes[i]
		text, err := m.Text, error(nil)
		if m.Kind != document.Number {
			text, err = m.ReadText(fmt.Sprintf("%s[%d]", field, i))
		}
		list = append(list, strings.Clone(text))
		if problems.Add(err); problems.Full() {
			break
		}
	}
	return list, problems.Err()
}

func (t *Target) parts() []part {
	return []part{
		textPart("url", &t.URL, schema{"type": "string", "minLength": 1, "maxLength": maxUpstreamURL, "description": "Base URL: http, https or h2c, the same scheme for all targets of the upstream.", "examples": []any{"https://10.0.0.1:8443"}}),
		countPart("weight", &t.Weight, 1, MaxTargetWeight, "Share of the requests, compared with the weights of the other targets. Default: 1."),
		boolPart("backup", &t.Backup, "true makes the target take part only while no other one does. Default: false."),
		boolPart("drain", &t.Drain, "true takes the target away: it gets no more requests. Default: false."),
		choicePart("resolve", &t.Resolve, Resolves(), "How the name in the URL is looked up: none, at each connect; a, every refresh, and each of its addresses is an address of the target; srv, every refresh, and each SRV record is one. Default: none."),
	}
}

func readTarget(n *document.Node, field string) (t Target, err error) {
	t.Weight = 1
	err = readParts(n, field, "a target", t.parts())
	if n.Kind == document.Mapping && n.Member("url") == nil && !n.HasLike("url") {
		err = fault.Join(err, n.Invalid(field+".url", "is missing: write the target's URL"))
	}
	if t.Weight == 0 {
		t.Weight = math.MinInt32 // 0 was given, which is stored for 1
	}
	return t.normal(), err
}

// normal returns the target in the form in which it is stored.
func (t Target) normal() Target {
	if t.Weight == 1 {
		t.Weight = 0
	}
	if t.Resolve == ResolveNone {
		t.Resolve = ""
	}
	return t
}

func targetsValue() valueType[[]Target] {
	return valueType[[]Target]{readTargets, encodeTargets, schema{
		"type": "array", "minItems": 1, "maxItems": MaxTargets, "items": schemaOf((&Target{}).parts(), "url"),
		"examples": []any{[]any{schema{"url": "https://10.0.0.1:8443"}, schema{"url": "https://10.0.0.2:8443", "weight": 2}}},
	}}
}

func readTargets(n *document.Node, field string) ([]Target, error) {
	if n.Kind != document.Sequence {
		return nil, n.Mismatch(field, document.Sequence, "a list such as [{url: https://orders.internal}]")
	}
	var problems document.Problems
	list := make([]Target, len(n.Nodes))
	for i := range n.Nodes {
		var err error
		list[i], err = readTarget(&n.Nodes[i], fmt.Sprintf("%s[%d]", field, i))
		if problems.Add(err); problems.Full() {
			break
		}
	}
	return list, problems.Err()
}

func encodeTargets(b *bytes.Buffer, list []Target) {
	b.WriteByte('\n')
	for _, t := range list {
		b.WriteString("    - {url: " + inFlow(t.URL))
		if t.WeightOf() != 1 {
			fmt.Fprintf(b, ", weight: %d", t.WeightOf())
		}
		if t.Backup {
			b.WriteString(", backup: true")
		}
		if t.Drain {
			b.WriteString(", drain: true")
		}
		if t.ResolveOf() != ResolveNone {
			b.WriteString(", resolve: " + string(t.Resolve))
		}
		b.WriteString("}\n")
	}
}

// inFlow returns a text as a scalar in a flow mapping.
func inFlow(s string) string {
	if strings.ContainsAny(s, "{}[],") {
		return document.Quoted(s)
	}
	return document.Scalar(s)
}

func (e *Ejection) parts() []part {
	duration := func(name string, to *string, doc string) part {
		return textPart(name, to, orNull(schema{"type": "string", "minLength": 2, "description": doc}))
	}
	return []part{
		countPart("failures", &e.Failures, 1, maxEjectionFailures, "How many failures in a row eject a target. Default: 5."),
		onPart(&e.On, 1, "What counts as a failure. Default: connect and reset."),
		duration("base", &e.Base, "How long a target is ejected the first time, as a Go duration from 100ms to 24h. Default: 10s."),
		duration("max", &e.Max, "How long a target is ejected at most, as a Go duration from 100ms to 24h. Default: 300s."),
		countPart("max_percent", &e.MaxPercent, 0, 100, "How many of the targets may be ejected at once for statuses and timeouts, in percent. Default: 50."),
	}
}

func ejectionValue() valueType[Ejection] {
	object := schemaOf((&Ejection{}).parts())
	return valueType[Ejection]{readEjection, encodeEjection, schema{"type": []any{"object", "boolean"}, "not": schema{"const": true}, "additionalProperties": false, "properties": object["properties"]}}
}

func readEjection(n *document.Node, field string) (Ejection, error) {
	if n.Kind == document.Bool {
		on, err := readBool(n, field)
		if err == nil && on {
			err = n.Invalid(field, "must be a mapping, false to turn it off, or null for the default")
		}
		return Ejection{Off: true}, err
	}
	e := DefaultEjection()
	return e, readParts(n, field, "ejection", e.parts())
}

func encodeEjection(b *bytes.Buffer, e Ejection) {
	if e.Off {
		b.WriteString(" false\n")
		return
	}
	fmt.Fprintf(b, " {failures: %d, on: %s, base: %s, max: %s, max_percent: %d}\n", e.Failures, "["+strings.Join(e.On, ", ")+"]", yamlDuration(e.Base), yamlDuration(e.Max), e.MaxPercent)
}

func (r *Retries) parts() []part {
	return []part{
		countPart("attempts", &r.Attempts, 0, MaxRetryAttempts, "How often a request is tried again. Default: 1."),
		countPart("budget_percent", &r.BudgetPercent, 0, 100, "Bound of the retries of the last 10 seconds, in percent of the requests, beside 30 that are always allowed. Default: 20."),
		onPart(&r.On, 0, "After which failures an idempotent request is tried again, although it was sent. Default: connect and reset."),
		boolPart("idempotency_key", &r.IdempotencyKey, "Whether POST and PATCH with the header Idempotency-Key count as idempotent. Default: false."),
	}
}

func retriesValue() valueType[Retries] {
	return valueType[Retries]{readRetries, encodeRetries, schemaOf((&Retries{}).parts())}
}

func readRetries(n *document.Node, field string) (Retries, error) {
	r := DefaultRetries()
	return r, readParts(n, field, "retries", r.parts())
}

func encodeRetries(b *bytes.Buffer, r Retries) {
	fmt.Fprintf(b, " {attempts: %d, budget_percent: %d, on: %s", r.Attempts, r.BudgetPercent, "["+strings.Join(r.On, ", ")+"]")
	if r.IdempotencyKey {
		b.WriteString(", idempotency_key: true")
	}
	b.WriteString("}\n")
}
