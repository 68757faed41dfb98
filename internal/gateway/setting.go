package gateway

import (
	"bytes"
	"reflect"
	"slices"

	"github.com/keygate/keygate/internal/document"
)

// Setting is one row of the table of settings (Settings): everything that the API, configuration
// files, the audit log, the command line, the Go client and the dashboard know about a setting. Each
// of them is a loop over the table.
type Setting struct {
	Name     string // in the API and in configuration files
	Kind     Kind
	NotNull  bool     // null is rejected; otherwise it restores the default
	Required bool     // by a creation
	Most     int64    // greatest number, or characters of a text, or entries of a list or map; 0 for no bound
	Choices  []string // of KindText: the only values, the default first; nil for no such list
	Example  string   // of the API's request, as in JSON without quotes; a list is separated by commas

	MayBeEmpty bool // of KindList: an empty list is as null; otherwise it is rejected

	Doc    Doc
	Record Record
	Flag   Flag
	Form   Form
	Parts  []Part // of KindLimit, KindCORS, KindSwitches, KindEjection, KindRetries, KindHealth, KindMaintenance and KindHeaderRules, which have a form field for each part

	values values

	ofUpstream bool // a row of UpstreamSettings
}

// Kind is a kind of settings. It implies the Go type of the values.
type Kind string

// The kinds of settings.
const (
	KindText        Kind = "text"         // string on one line
	KindDuration    Kind = "duration"     // string: a Go duration
	KindBool        Kind = "bool"         // bool
	KindCount       Kind = "count"        // int64, at least 1
	KindList        Kind = "list"         // []string
	KindHeaders     Kind = "headers"      // map[string]string, whose values are secret
	KindCertificate Kind = "certificate"  // string: certificates in PEM
	KindKey         Kind = "key"          // string: a private key in PEM, which is secret
	KindLimit       Kind = "limit"        // ratelimit.Config with Sustained and Burst
	KindCORS        Kind = "cors"         // CORS
	KindSwitches    Kind = "switches"     // SelfServicePatch: an object of bools, which are the parts
	KindTargets     Kind = "targets"      // []Target
	KindEjection    Kind = "ejection"     // Ejection
	KindRetries     Kind = "retries"      // Retries
	KindSplit       Kind = "split"        // Split
	KindHealth      Kind = "health"       // Health, whose headers are secret
	KindMaintenance Kind = "maintenance"  // *Maintenance
	KindHeaderRules Kind = "header_rules" // *HeaderRules
	KindPairs       Kind = "pairs"        // map[string]string, whose values are shown; only of parts
)

// IsSecret reports whether the values are secret: stored encrypted, and shown as Masked.
func (k Kind) IsSecret() bool { return k == KindHeaders || k == KindKey }

// Doc describes a setting, for each surface in one or more sentences.
type Doc struct {
	File   string // in the JSON Schema of configuration files
	Create string // in the body of createGateway; "" means as Update
	Update string // in the body of updateGateway
	Record string // description in the record; "" for a setting that the record does not have
	Patch  string // in client.GatewayPatch, as a comment at the end of the line
}

// Record says how the record of a gateway has a setting.
type Record struct {
	First     bool   // before the settings that are not
	OmitEmpty bool   // true: absent if it is not set, and at the end; false: always present, perhaps null or empty
	Example   string // "" means the description in the request
}

// Flag is the flag of a setting on the command line, and what commands show of it.
type Flag struct {
	Name   string // without the dashes
	Usage  string // the value's name is in backquotes
	Whole  bool   // of a list: a comma is a part of a value; otherwise it separates values
	File   string // what an error calls the file with the value, which may be - for standard input
	Column string // "" for a setting that keygate gateways get does not show
	Rank   int    // when settings are shown, lower ranks come first
}

// Form describes the field of a setting in the form of the dashboard.
type Form struct {
	Group       string // title of a group of Groups
	Rank        int    // in the group, lower ranks come first
	Label       string
	Hint        string
	Placeholder string
	Unit        string
	Plain       bool // in the font of prose
}

// Part is a part of a setting that has an object for its value.
type Part struct {
	Name    string // of the object's field
	Kind    Kind
	Choices []string // of KindList: the only values
	Flag    Flag     // none if the setting has one
	Form    Form
}

// Group is a group of settings in the form of the dashboard.
type Group struct{ Title, Text string }

// Groups returns the groups of settings in the form of the dashboard, in its order.
func Groups() []Group {
	return []Group{
		{Title: "Addressing"},
		{Title: "Upstream"},
		{Title: "Headers", Text: "Set on messages and removed from them, whatever callers and services send. Routes may have rules of their own."},
		{Title: "Maintenance", Text: "While it lasts, only the addresses below are served."},
		{Title: "Client addresses", Text: "Who may use this gateway at all. The longest prefix that contains the client's address decides."},
		{Title: "OpenAPI document", Text: "Whether requests are held against it. Begin with report, and see on the gateway's page what enforce would refuse."},
		{Title: "Split of requests", Text: "Which of them go to another upstream, on all routes without a split of their own. A header is the caller's choice: it is no access control."},
		{Title: "Limit of all requests", Text: "Across all keys and routes of this gateway."},
		{Title: "Limit of public routes", Text: "Of each client address, on routes that need no key."},
		{Title: "Holders of keys", Text: "What they may do themselves, at paths below /.keygate/, which then reach no route."},
		{Title: "Browsers (CORS)", Text: "With an origin, Keygate answers preflights itself."},
		{Title: "Connections to the upstream", Text: "Empty means the default."},
	}
}

// Member is a setting in a document or a request: absent, null (which restores the default) or
// a value.
type Member[T any] struct {
	Present bool
	Null    bool
	Value   T
}

// values reads and writes the values of one setting: access for some type.
type values interface {
	read(s *Setting, p *Patch, field string, section, m *document.Node) error
	encode(name string, b *bytes.Buffer, p *Patch)
	export(p *Patch, g *Gateway)
	put(p *Patch, v any)
	given(p *Patch) bool
	move(from, to *Patch)
	change(s *Setting, p *Patch) (func(*Gateway), error)
	value(g *Gateway) any
	initial() any
	schema() schema
}

// access reads and writes the values of one setting, which have the type T.
type access[T any] struct {
	file   valueType[T]
	member func(*Patch) *Member[T]

	// field returns where a gateway has the setting. If it is stored in another form, get and set are
	// given instead. Package control sets secrets, and settings that need more than their value.
	field func(*Gateway) *T
	get   func(*Gateway) T
	set   func(*Gateway, T)

	normal T                // the default, which null restores and an export leaves out
	shown  func(*Gateway) T // the value in the record and the audit log; nil means the stored value
	pinned bool             // an export has the default too, as null
	check  func(T) error    // its errors name the field; nil accepts every value of the type
}

func (a access[T]) stored(g *Gateway) T {
	if a.field != nil {
		return *a.field(g)
	}
	return a.get(g)
}

func (a access[T]) move(from, to *Patch) {
	*a.member(to), *a.member(from) = *a.member(from), Member[T]{}
}

func (a access[T]) valid(v T) error {
	if a.check == nil {
		return nil
	}
	return a.check(v)
}

// read reads the setting from m, a member of section, which is the value of field.
func (a access[T]) read(s *Setting, p *Patch, field string, section, m *document.Node) (err error) {
	to := a.member(p)
	*to = Member[T]{Present: true, Null: !s.NotNull && m.Kind == document.Null}
	if to.Null {
		return nil
	}
	if to.Value, err = a.file.read(m, field+"."+s.Name); err != nil {
		return err
	}
	return withPosition(s.problem(a.valid(to.Value)), section, field)
}

func (a access[T]) encode(name string, b *bytes.Buffer, p *Patch) {
	switch m := a.member(p); {
	case m.Null:
		b.WriteString("  " + name + ": null\n")
	case m.Present:
		b.WriteString("  " + name + ":")
		a.file.encode(b, m.Value)
	}
}

func (a access[T]) export(p *Patch, g *Gateway) {
	v := a.stored(g)
	isDefault := reflect.DeepEqual(v, a.normal)
	if !isDefault || a.pinned {
		*a.member(p) = Member[T]{Present: true, Null: isDefault, Value: v}
	}
}

func (a access[T]) put(p *Patch, v any) {
	m := a.member(p)
	*m = Member[T]{Present: true, Null: v == nil}
	if v != nil {
		m.Value, _ = v.(T)
	}
}

func (a access[T]) given(p *Patch) bool { return a.member(p).Present }

func (a access[T]) change(s *Setting, p *Patch) (func(*Gateway), error) {
	m := a.member(p)
	if !m.Present {
		return nil, nil
	}
	v := a.normal
	if !m.Null || s.NotNull {
		v = m.Value
		if err := a.valid(v); err != nil {
			return nil, s.problem(err)
		}
	}
	if a.field != nil {
		return func(g *Gateway) { *a.field(g) = v }, nil
	}
	return func(g *Gateway) { a.set(g, v) }, nil
}

func (a access[T]) value(g *Gateway) any {
	if a.shown != nil {
		return a.shown(g)
	}
	return a.stored(g)
}

func (a access[T]) initial() any { return a.normal }

func (a access[T]) schema() schema { return a.file.schema }

// problem returns an error of the value as one of the setting.
func (s *Setting) problem(err error) error {
	if s.ofUpstream {
		return OfUpstream(err)
	}
	return err
}

// Put sets the setting in p to v, which has the Go type of the setting's kind. nil means null.
func (s *Setting) Put(p *Patch, v any) { s.values.put(p, v) }

// IsGiven reports whether p has the setting.
func (s *Setting) IsGiven(p *Patch) bool { return s.values.given(p) }

// Move moves the setting from one patch to another, or does so with its absence.
func (s *Setting) Move(from, to *Patch) { s.values.move(from, to) }

// Change checks the setting in p, and returns a function that applies it to a gateway; nil if p does not have
// the setting. Package control applies the settings whose values are secret or that depend on the account.
func (s *Setting) Change(p *Patch) (func(*Gateway), error) { return s.values.change(s, p) }

// Value returns the setting of g in the Go type of its kind: the default if g does not set it, and Masked
// in place of secrets.
func (s *Setting) Value(g *Gateway) any { return s.values.value(g) }

// Default returns the value that null restores.
func (s *Setting) Default() any { return s.values.initial() }

// SettingNames returns the names of all settings of a gateway, in the order of an export.
func SettingNames() []string {
	rows := Settings()
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = rows[i].Name
	}
	return names
}

// findSetting returns the row of a name, or nil.
func findSetting(rows []Setting, name string) *Setting {
	i := slices.IndexFunc(rows, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &rows[i]
}
