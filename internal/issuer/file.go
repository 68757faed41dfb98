package issuer

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/jwk"
)

// File is a file of issuers: all that an account has, or some of them.
type File struct{ Issuers []FileIssuer }

// FileIssuer is an issuer of a file: its name and settings. What the file leaves out has its default.
type FileIssuer struct {
	Issuer
	Position document.Position
}

// IsFile reports whether a configuration file is a file of issuers. A file that cannot be parsed is not.
func IsFile(content []byte) bool {
	root, err := document.Parse(content)
	return err == nil && root.Member("issuers") != nil && root.Member("routes") == nil
}

// ParseFile parses a file of issuers in YAML or JSON. The error is a validation error that lists everything that is wrong,
// in the order of the file, as that of gateway.ParseDocument.
func ParseFile(content []byte) (*File, error) {
	f := &File{}
	_, err := gateway.ReadFile(content, f.read)
	return f, err
}

// ParseOne parses what an issuer of a file has.
func ParseOne(content []byte) (i *FileIssuer, err error) {
	_, err = gateway.ReadFile(content, func(root *document.Node) (err error) {
		i, err = readIssuer(root, "")
		return err
	})
	return i, err
}

// AddMistakes returns err, which gateway.ResolveEnv returned for a file, with everything else that is wrong with it.
func AddMistakes(content []byte, err error) error {
	return gateway.AddMistakesOf(content, err, (&File{}).read)
}

func (f *File) read(root *document.Node) error {
	return root.EachMember("", func(m *document.Node) error {
		switch m.Name {
		case "issuers":
			return f.readIssuers(m)
		case "$schema": // for editors
			_, err := m.ReadText(m.Name)
			return err
		}
		return m.Unknown(m.Name, "is not a field of a file of issuers: it has issuers alone, and plans and gateways have files of their own")
	})
}

func (f *File) readIssuers(n *document.Node) error {
	switch {
	case n.Kind != document.Sequence:
		return n.Mismatch("issuers", document.Sequence, "")
	case len(n.Nodes) > MaxIssuers:
		return n.Invalid("issuers", "must have at most %d issuers", MaxIssuers)
	}
	var problems document.Problems
	named := map[string]int{}
	for at := range n.Nodes {
		field := fmt.Sprintf("issuers[%d]", at)
		i, err := readIssuer(&n.Nodes[at], field)
		if first, taken := named[i.Name]; taken && i.Name != "" {
			err = fault.Join(err, document.WithPosition(fault.Invalid("name", "must be unique: issuers[%d] has it, too", first), &n.Nodes[at], field))
		} else {
			named[i.Name] = at
		}
		f.Issuers = append(f.Issuers, *i)
		if problems.Add(err); problems.Full() {
			break
		}
	}
	return problems.Err()
}

// readIssuer reads an issuer. It always returns one.
func readIssuer(n *document.Node, at string) (*FileIssuer, error) {
	i := &FileIssuer{Position: n.Position}
	if n.Kind != document.Mapping {
		return i, n.Mismatch(at, document.Mapping, "")
	}
	unread, err := document.Fields{
		"name": document.TextOf(&i.Name), "issuer": document.TextOf(&i.URL), "jwks_url": document.TextOf(&i.JWKSURL), "ca": document.TextOf(&i.CA),
		"leeway": document.TextOf(&i.Leeway), "max_lifetime": document.TextOf(&i.MaxLifetime), "typ": document.TextOf(&i.Type),
		"audiences": textsOf(&i.Audiences), "default_scopes": textsOf(&i.DefaultScopes),
		"algorithms": func(m *document.Node, at string) error {
			var names []string
			err := textsOf(&names)(m, at)
			for _, name := range names {
				i.Algorithms = append(i.Algorithms, jwk.Algorithm(name))
			}
			if err == nil && names != nil && i.Algorithms == nil {
				i.Algorithms = []jwk.Algorithm{}
			}
			return err
		},
		"jwks": func(m *document.Node, at string) error {
			if m.Kind != document.Mapping {
				return m.Mismatch(at, document.Mapping, "a JWK Set: a mapping with the list keys")
			}
			content, err := m.JSON(at)
			i.JWKS = string(content)
			return err
		},
		"owner_prefix": func(m *document.Node, at string) error {
			text, err := m.ReadText(at)
			i.OwnerPrefix = &text
			return err
		},
		"forward_token": func(m *document.Node, at string) error {
			if m.Kind != document.Bool {
				return m.Mismatch(at, document.Bool, "")
			}
			content, _ := m.JSON(at)
			i.ForwardToken = string(content) == "true"
			return nil
		},
		"scope_map": mapOf(&i.ScopeMap, (*document.Node).ReadText), "claim_headers": mapOf(&i.ClaimHeaders, (*document.Node).ReadText),
		"required": mapOf(&i.Required, readValues),
		"claims": func(m *document.Node, at string) error {
			if m.Kind != document.Mapping {
				return m.Mismatch(at, document.Mapping, "")
			}
			_, err := document.Fields{
				"scope": document.TextOf(&i.Claims.Scope), "owner": document.TextOf(&i.Claims.Owner), "plan": document.TextOf(&i.Claims.Plan),
			}.Read(m, at, "is not one of scope, owner and plan")
			return err
		},
	}.Read(n, at, "is not a field of an issuer: use "+fieldNames())
	for _, f := range Fields() { // what is only like it in name is reported as unknown
		unread[f.Name] = unread[f.Name] || n.HasLike(f.Name)
	}
	return i, fault.Join(err, document.Wrong(i.Validate(), n, at, unread, "issuer", "jwks_url", "ca"))
}

// fieldNames lists the fields of an issuer.
func fieldNames() string {
	var b bytes.Buffer
	fields := Fields()
	for n := range fields {
		switch n {
		case 0:
		case len(fields) - 1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(fields[n].Name)
	}
	return b.String()
}

// textsOf returns what reads a list of strings. An empty list is not nil.
func textsOf(to *[]string) func(*document.Node, string) error {
	return func(m *document.Node, at string) (err error) {
		*to, err = m.ReadTexts(at)
		return err
	}
}

// mapOf returns what reads a mapping.
func mapOf[V any](to *map[string]V, read func(*document.Node, string) (V, error)) func(*document.Node, string) error {
	return func(m *document.Node, at string) error {
		*to = map[string]V{}
		return m.EachMember(at, func(one *document.Node) error {
			v, err := read(one, document.Below(at, one.Name))
			if err == nil {
				(*to)[one.Name] = v
			}
			return err
		})
	}
}

// readValues reads the values of a claim.
func readValues(m *document.Node, at string) (values Values, err error) {
	content, err := m.JSON(at)
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(content, &values) != nil {
		return nil, m.Invalid(at, "must be a string, a number, true or false, or a list of these")
	}
	return values, nil
}

// Given returns the fields that have another value than the default, by their names, as JSON has them, in a form in which
// the API takes them. The issuer must be valid.
func (i *Issuer) Given() map[string]any {
	given := map[string]any{}
	usual := &Issuer{Name: i.Name}
	for _, f := range Fields() {
		v := f.Value(i)
		if reflect.DeepEqual(v, f.Value(usual)) && f.Name != "name" {
			continue
		}
		if text, isText := v.(string); isText && f.Name == "jwks" {
			v = rawJSON(text)
		}
		given[f.Name] = v
	}
	return given
}

// rawJSON is a text in JSON.
type rawJSON string

// MarshalJSON returns the text.
func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// Encode returns the file as YAML, with issuers in their order. ParseFile turns it into an equal file.
func (f *File) Encode() []byte {
	var b bytes.Buffer
	if len(f.Issuers) == 0 {
		return []byte("issuers: []\n")
	}
	b.WriteString("issuers:\n")
	for n := range f.Issuers {
		given, start := f.Issuers[n].Given(), "  - "
		for _, field := range Fields() {
			if v, isGiven := given[field.Name]; isGiven {
				fmt.Fprintf(&b, "%s%s:%s\n", start, field.Name, yamlOf(v))
				start = "    "
			}
		}
	}
	return b.Bytes()
}

// yamlOf returns a value in YAML, as it follows the colon after the name of its field.
func yamlOf(v any) string {
	switch v := v.(type) {
	case string:
		if _, err := time.ParseDuration(v); err == nil && strings.ContainsAny(v[len(v)-1:], "smh") {
			return " " + v // Scalar quotes what starts with a digit
		}
		return " " + document.Scalar(v)
	case []string:
		return " " + document.Flow(v)
	case map[string]string:
		var b bytes.Buffer
		for _, name := range slices.Sorted(maps.Keys(v)) {
			fmt.Fprintf(&b, "\n      %s: %s", document.Scalar(name), document.Scalar(v[name]))
		}
		return b.String()
	}
	content, _ := json.Marshal(v, json.Deterministic(true)) // a valid issuer has a form
	return " " + string(content)
}
