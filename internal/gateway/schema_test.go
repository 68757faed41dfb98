package gateway_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/keygate/keygate/internal/gateway"
)

// fileSchema compiles the schema, which checks it against the schema of draft 2020-12.
func fileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(gateway.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(gateway.SchemaID, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(gateway.SchemaID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate returns what a schema says about a document in YAML.
func validate(t interface{ Fatal(...any) }, s *jsonschema.Schema, text []byte) error {
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// Guarantee: the schema describes each setting that a file can give, and gives valid examples.
func TestSchemaHasEverySetting(t *testing.T) {
	var root struct {
		Properties struct {
			Gateway struct{ Properties map[string]map[string]any }
		}
	}
	if err := json.Unmarshal(gateway.Schema(), &root); err != nil {
		t.Fatal(err)
	}
	settings := root.Properties.Gateway.Properties
	if len(settings) != len(gateway.SettingNames())+1 {
		t.Errorf("got %d settings in the schema; want %d and the upstreams", len(settings), len(gateway.SettingNames()))
	}
	s := fileSchema(t)
	for _, name := range gateway.SettingNames() {
		if description, _ := settings[name]["description"].(string); len(description) < 20 {
			t.Errorf("%s: got the description %q; want one", name, description)
		}
		examples, _ := settings[name]["examples"].([]any)
		for _, e := range examples {
			text, err := json.Marshal(map[string]any{"gateway": map[string]any{name: e}, "routes": []any{}})
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(t, s, text); err != nil {
				t.Errorf("%s: got %v of the example %v; want it valid", name, err, e)
			}
		}
	}
	if err := validate(t, s, []byte(withEverySetting(t))); err != nil {
		t.Errorf("got %v of a file with every setting; want it valid", err)
	}
}

// Guarantee: the reference of the file in the docs has a row for each setting.
func TestEverySettingIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration-file.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range gateway.SettingNames() {
		if !strings.Contains(string(page), "\n| `"+name+"` | ") {
			t.Errorf("docs/configuration-file.md has no row for %s", name)
		}
	}
}

// exampleFiles returns the configuration files in the docs and in the scripts that test the command
// line, by name: the blocks that have the field routes and are not OpenAPI documents.
func exampleFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	block := regexp.MustCompile("(?ms)^```(?:yaml|json)\n(.*?\n)```")
	add := func(name, text string) {
		if regexp.MustCompile(`(?m)^(?:"?routes"?:|\{"gateway")`).MatchString(text) {
			files[name] = text
		}
	}
	for _, dir := range []string{"../../docs", "../cli/testdata/script"} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			switch filepath.Ext(path) {
			case ".md":
				for i, m := range block.FindAllStringSubmatch(string(content), -1) {
					add(path+"#"+string(rune('a'+i)), m[1])
				}
			case ".txtar":
				for _, part := range strings.Split(string(content), "\n-- ")[1:] {
					name, text, _ := strings.Cut(part, " --\n")
					add(path+"#"+name, text)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// Guarantee: the schema accepts every example file that is valid, with ${env:NAME} in it and without.
func TestSchemaAcceptsTheExamples(t *testing.T) {
	s := fileSchema(t)
	valid := 0
	for name, text := range exampleFiles(t) {
		resolved, err := gateway.ResolveEnv([]byte(text), func(string) (string, bool) { return "a", true })
		if err != nil {
			continue
		}
		if _, err := gateway.ParseDocument(resolved); err != nil {
			if strings.HasPrefix(name, "../../docs") {
				t.Errorf("%s: got %v; want a valid example", name, err)
			}
			continue
		}
		valid++
		for what, content := range map[string][]byte{"as it is": []byte(text), "resolved": resolved} {
			if err := validate(t, s, content); err != nil {
				t.Errorf("%s, %s: got %v; want it valid", name, what, err)
			}
		}
	}
	if valid < 5 {
		t.Errorf("got %d valid examples; want several", valid)
	}
}

// Guarantee: the schema rejects every structural mistake in a file.
func TestSchemaRejectsInvalidStructure(t *testing.T) {
	s := fileSchema(t)
	route := func(fields string) string { return "routes: [{" + fields + "}]\n" }
	cost := func(text string) string { return route("path: /a, methods: [GET], cost: " + text) }
	setting := func(fields string) string { return "gateway: {" + fields + "}\nroutes: []\n" }
	texts := []string{
		"- a\n", "gateway: {}\n", "routes:\n", "routes: {}\n", "routes: []\nrouts: []\n", "gateway:\nroutes: []\n", "$schema: 5\nroutes: []\n",
		route("path: /a"), route("methods: [GET]"), "routes: [x]\n", route("path: a, methods: [GET]"), route("path: /a, methods: GET"), route("path: /a, methods: [GET, 7]"),
		route("path: /a, methods: [get]"), route("path: /a, methods: []"), route("path: /a, methods: [GET], auth: open"), route("path: /a, methods: [GET], auth: null"), route("path: /a, methods: [GET], limit: {}"),
		route("path: /a, methods: [GET], rate_limit: 5/s"), route("path: /a, methods: [GET], rate_limit: {}"), route("path: /a, methods: [GET], rate_limit: {burst: 05/s}"),
		route("path: /a, methods: [GET], rate_limit: {daily: 5/s}"), route("path: /a, methods: [GET], rate_limit: {burst: 5}"), route("path: /a, methods: [GET], rate_limit: {bust: 5/s}"),
		route("path: /a, methods: [GET], rate_limit: {burst: 5/s, per: ip}"),
		cost("5"), cost("{meter: a}"), cost("[a]"), cost("[{meter: a}]"), cost("[{from: {request: 1}}]"), cost("[{meter: A, from: {request: 1}}]"), cost("[{meter: bytes_in, from: {request: 1}}]"),
		cost("[{meter: a, from: {}}]"), cost("[{meter: a, from: {request: 1, header: X}}]"), cost("[{meter: a, from: {request: 1, by: b}}]"), cost("[{meter: a, max: 5, from: {header: X, prices: {a: {b: 1}}}}]"),
		cost("[{meter: a, from: {request: -1}}]"), cost("[{meter: a, from: {request: '1'}}]"), cost("[{meter: a, from: {request: null}}]"), cost("[{meter: a, max: 5, from: {json: {}}}]"), cost("[{meter: a, max: 5, from: {json: {a: x}}}]"),
		cost("[{meter: a, max: 5, from: {json: {a: 1000001}}}]"), cost("[{meter: a, max: 5, from: {json: [a]}}]"), cost("[{meter: a, max: 5, from: {json: {a: 1}, by: b, prices: {c: 1}}}]"),
		cost("[{meter: a, max: 5, from: {header: X}, unknown: min}]"), cost("[{meter: a, max: 5, from: {header: X}, unknown: {bytes_in: 1, bytes_out: 1}}]"), cost("[{meter: a, max: 5, from: {header: X}, unknown: {bytes_in: 0}}]"),
		cost("[{meter: a, max: 5, from: {header: X}, least: 1}]"),
		setting("nam: x"), setting("name: 7"), setting("name: ''"), setting("name: null"), setting("default: 'true'"), setting("default: null"), setting("upstream_url: null"),
		setting("global_rate_limit: {burst: 5/s}"), setting("global_rate_limit: {sustained: 5/s, daily: 5/day}"), setting("global_rate_limit: {sustained: null}"),
		setting("timeout: 30"), setting("upstream_headers: [a]"), setting("upstream_headers: {A: 5}"), setting("upstream_client_key: 5"),
		setting("upstream_max_connections: 0"), setting("upstream_max_connections: 100001"), setting("max_body_bytes: -1"), setting("max_body_bytes: 1.5"), setting("max_body_bytes: '5'"),
		setting("cors: {}"), setting("cors: {origins: []}"), setting("cors: {origins: null}"), setting("cors: {origins: ['*'], max_age: 86401}"), setting("cors: {origins: ['*'], age: 1}"),
		setting("key_headers: []"), setting("key_headers: [a, b, c, d, e]"), setting("allow_encoded_slashes: 1"), setting("cut_streams: 0"),
	}
	for _, text := range texts {
		if _, err := gateway.ParseDocument([]byte(text)); err == nil {
			t.Errorf("%s: the file is valid; want a problem", text)
		}
		if err := validate(t, s, []byte(text)); err == nil {
			t.Errorf("%s: the schema accepts it; want a problem", text)
		}
	}
	if slices.Contains(texts, "routes: []\n") || validate(t, s, []byte("$schema: a\nroutes: []\n")) != nil {
		t.Error("the schema rejects an empty table; want it accepted")
	}
}

// Guarantee: the schema accepts every form of a cost that a file may have.
func TestSchemaAcceptsCosts(t *testing.T) {
	s := fileSchema(t)
	for _, text := range []string{
		"null", "[]", "[{meter: a, from: {request: 0}}]", "[{meter: requests, reserve: 1, max: 5, from: {request: 5, header: null, json: null}, unknown: null}]",
		"[{meter: a, max: 5, from: {header: X-Cost, expose: true}, unknown: reserve}, {meter: b, max: 5, from: {header: X-B}, unknown: max}]",
		`[{meter: a_1, max: 9007199254740991, from: {json: {a.b: 1, "c|d?": -0.000001}, by: "e|f", prices: {"g h": {i: 1000000}}}, unknown: {bytes_out: 0.25}}]`,
	} {
		text = "routes: [{path: /a, methods: [GET], cost: " + text + "}]\n"
		if _, err := gateway.ParseDocument([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if err := validate(t, s, []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	variable := "routes: [{path: /a, methods: [GET], cost: [{meter: \"${env:METER}\", max: 5, from: {header: \"${env:H}\"}, unknown: \"${env:U}\"}]}]\n"
	if err := validate(t, s, []byte(variable)); err != nil {
		t.Errorf("%s: %v", variable, err)
	}
}
