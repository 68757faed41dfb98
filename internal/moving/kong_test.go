package moving_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/moving"
	"github.com/keygate/keygate/internal/plan"
)

var update = flag.Bool("update", false, "write the golden files anew")

// importKong imports a file of testdata/kong.
func importKong(t testing.TB, name string, content []byte) *moving.Result {
	t.Helper()
	deck, err := moving.ReadKong(name, content)
	if err != nil {
		t.Fatal(err)
	}
	r, err := moving.Kong(deck)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// text returns a result as one text.
func text(t testing.TB, r *moving.Result) []byte {
	t.Helper()
	var b bytes.Buffer
	b.Write(r.ReportText())
	for _, f := range r.Files {
		fmt.Fprintf(&b, "--- %s\n%s", f.Name, f.Content)
	}
	keys, err := r.KeysText()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "--- keys.json\n%s", keys)
	return b.Bytes()
}

// golden compares got with a file, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))) {
		t.Errorf("%s: got\n%s\nwant\n%s\nIf it is right, run go test -update", name, got, want)
	}
}

// Guarantee: edge.md, section 5: the report says of each object what became of it, in the way that an operator of Kong
// would, and the files are valid.
func TestReportsOfKong(t *testing.T) {
	names, err := filepath.Glob("testdata/kong/*.[yj][as][mo][ln]")
	if err != nil || len(names) < 10 {
		t.Fatalf("got the files %v, %v, want at least ten", names, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			r := importKong(t, filepath.Base(name), content)
			for _, f := range r.Files {
				resolved, err := gateway.ResolveEnv(f.Content, func(string) (string, bool) { return "variable.internal", true })
				if err != nil {
					t.Fatal(err)
				}
				if plan.IsFile(resolved) {
					_, err = plan.ParseFile(resolved)
				} else {
					_, err = gateway.ParseDocument(resolved)
				}
				if err != nil {
					t.Errorf("%s: %v\n%s", f.Name, err, resolved)
				}
			}
			golden(t, strings.TrimSuffix(name, filepath.Ext(name))+".golden", text(t, r))
		})
	}
}

// Guarantee: what is wrong with a file is said with its line and column, and the remedy.
func TestMistakesInFilesOfKong(t *testing.T) {
	for content, want := range map[string]string{
		"":                                     "line 1, column 1: the document is empty",
		"services: []":                         "line 1, column 1: is missing: is this a file of decK?",
		"_format_version: '9.9'":               `line 1, column 18: "9.9" is not a format that can be read: convert the file to 3.0 with deck file convert`,
		"- a":                                  "line 1, column 1: must be a mapping with _format_version and services",
		"_format_version: '3.0'\nservices: {}": "line 2, column 11: must be a list",
		"_format_version: '3.0'\nservices:\n- routes: [{paths: /a}]":                    "line 3, column 20: must be a list",
		"_format_version: '3.0'\nservices:\n- routes: [{strip_path: 'yes'}]":            "line 3, column 25: must be a boolean",
		"_format_version: '3.0'\nservices:\n- {port: many}":                             "line 3, column 10: must be a number",
		"_format_version: '3.0'\nplugins:\n- config: {}":                                "line 3, column 3: is missing: name the plugin",
		"_format_version: '3.0'\nplugins:\n- {name: cors, _config: x}":                  `line 3, column 25: "x" is not in _plugin_configs`,
		"_format_version: '3.0'\nplugins:\n- {name: cors, config: 3}":                   "line 3, column 24: must be a mapping, not a number",
		"_format_version: '3.0'\nupstreams:\n- targets: [{}]":                           "line 3, column 13: is missing: write the host and port",
		"_format_version: '3.0'\nservices:\n- url: http://${env:SECRET}.example":        "line 3, column 8: must not contain ${env:",
		"_format_version: '3.0'\n_format_version: '3.0'":                                "line 2, column 1",
		"_format_version: '3.0'\nconsumers:\n- username: a\n  keyauth_credentials: [k]": "line 4, column 25: must be a mapping",
	} {
		_, err := moving.ReadKong("kong.yaml", []byte(content))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", content, err, want)
		}
	}
}

// Guarantee: several files are one Kong: routes, plugins and consumers of one may refer to services of another.
func TestSeveralFilesOfKong(t *testing.T) {
	var decks []*moving.Deck
	for name, content := range map[string]string{
		"a.yaml": "_format_version: '3.0'\nservices:\n- {name: a, url: 'http://a.internal'}\n",
		"b.yaml": "_format_version: '3.0'\nroutes:\n- {name: b, service: {name: a}, paths: [/b], strip_path: false}\nplugins:\n- {name: key-auth, service: a}\n",
	} {
		d, err := moving.ReadKong(name, []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		decks = append(decks, d)
	}
	r, err := moving.Kong(decks...)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Files) != 1 || strings.Contains(string(r.Files[0].Content), "auth: none") || !strings.Contains(string(r.Files[0].Content), "path: /b\n") {
		t.Errorf("got %s, want a route /b that needs a key", text(t, r))
	}
}

// Guarantee: two objects with one name are an error, since a plugin that refers to it would protect one of them alone.
func TestNamesOfKongAreUnique(t *testing.T) {
	d, err := moving.ReadKong("kong.yaml", []byte("_format_version: '3.0'\nservices:\n- {name: a, url: 'http://a.internal', routes: [{name: r, paths: [/a]}]}\n- {name: b, url: 'http://b.internal',\n   routes: [{name: r, paths: [/b]}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "kong.yaml:5: the route r has the same name as the one of kong.yaml:3: remove one, or give it another"
	if _, err := moving.Kong(d); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// Guarantee: a plugin of a route or service that is not in the files is an error, since nobody knows what would lack it.
func TestPluginsOfNothing(t *testing.T) {
	for _, of := range []string{"service: gone", "route: {id: 5ee3cbbb-5b3f-4d3c-8f0a-0a0a0a0a0a0a}"} {
		d, err := moving.ReadKong("kong.yaml", []byte("_format_version: '3.0'\nservices:\n- {name: a, url: 'http://a.internal', routes: [{paths: [/a]}]}\nplugins:\n- {name: jwt, "+of+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := moving.Kong(d); err == nil || !strings.Contains(err.Error(), "kong.yaml:5: the plugin jwt is of the ") || !strings.Contains(err.Error(), "which is not in the files: give the file that has it too, or remove the plugin") {
			t.Errorf("%s: got %v", of, err)
		}
	}
}

// Guarantee: no key, header or other secret of a file is in its report, and no key is in keys.json.
func TestReportsHaveNoSecrets(t *testing.T) {
	const key, header = "acme-secret-0123456789", "token-of-the-service"
	r := importKong(t, "kong.yaml", []byte(`_format_version: "3.0"
services:
- name: a
  url: http://a.internal
  routes: [{name: a, paths: [/a], strip_path: false}]
  plugins:
  - {name: key-auth}
  - name: request-transformer
    config: {add: {headers: ["X-Token: `+header+`"]}}
consumers:
- username: acme
  keyauth_credentials: [{key: `+key+`}, {key: "kg_`+key+`"}, {key: "{`+key+`}"}]
  jwt_secrets: [{key: `+key+`, secret: `+key+`}]
`))
	keys, err := r.KeysText()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{key, header} {
		if strings.Contains(string(r.ReportText()), secret) || strings.Contains(string(keys), secret) {
			t.Errorf("%q is in the report or keys:\n%s%s", secret, r.ReportText(), keys)
		}
	}
	if len(r.Keys) != 1 {
		t.Errorf("got %d keys, want that which is in the file", len(r.Keys))
	}
}

// FuzzKong imports any text: it returns an error with a position or valid files, within bounded time and memory.
func FuzzKong(f *testing.F) {
	names, _ := filepath.Glob("testdata/kong/*.yaml")
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte("_format_version: '1.1'\nservices:\n- {url: 'http://a', routes: [{paths: ['/(?<a>[^/]+)/(b|c)', '/d.*$']}]}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 64<<10 {
			return
		}
		deck, err := moving.ReadKong("kong.yaml", content)
		if err != nil {
			return
		}
		r, err := moving.Kong(deck)
		if err != nil {
			if strings.Contains(err.Error(), "would not be valid") && !strings.Contains(err.Error(), "too many values") {
				t.Error(err)
			}
			return
		}
		for _, file := range r.Files {
			if bytes.Contains(file.Content, []byte("${env:")) {
				continue
			}
			if plan.IsFile(file.Content) {
				_, err = plan.ParseFile(file.Content)
			} else {
				_, err = gateway.ParseDocument(file.Content)
			}
			if err != nil {
				t.Errorf("%v\n%s", err, file.Content)
			}
		}
	})
}

// Guarantee: docs/limits.md: an import beyond a bound is an error that says which, and one within takes bounded time.
func TestImportsAreBounded(t *testing.T) {
	if _, err := moving.ReadKong("kong.yaml", make([]byte, moving.MaxFile+1)); err == nil || !strings.Contains(err.Error(), "more than 16 MiB") {
		t.Errorf("got %v for a file that is too large", err)
	}
	if _, err := moving.Unkey(moving.UnkeyConfig{}, "pages.json", make([]byte, moving.MaxFile+1)); err == nil || !strings.Contains(err.Error(), "more than 16 MiB") {
		t.Errorf("got %v for a file that is too large", err)
	}
	var decks []*moving.Deck
	for i := range moving.MaxFiles + 1 {
		d, err := moving.ReadKong(fmt.Sprintf("%d.yaml", i), []byte("_format_version: '3.0'"))
		if err != nil {
			t.Fatal(err)
		}
		decks = append(decks, d)
	}
	if _, err := moving.Kong(decks...); err == nil || !strings.Contains(err.Error(), "at most 100 files") {
		t.Errorf("got %v for too many files", err)
	}
	for name, test := range map[string]struct {
		hosts, routes int
		path          string
		want          string
	}{
		"routes":              {1000, 600, "/r%d", "more than 500000 routes"},
		"regular expressions": {1, 201, "~/r%d/[^/]+/x$", "more than 200 paths of a host are regular expressions"},
		"different paths":     {1, 30_000, "/r%d", "too many different paths"},
		"within":              {1, 4_000, "/r%05d", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var routes []map[string]any
			for i := range test.routes {
				routes = append(routes, map[string]any{"paths": []string{fmt.Sprintf(test.path, i)}, "strip_path": false})
			}
			for i := range test.hosts - 1 {
				routes = append(routes, map[string]any{"hosts": []string{fmt.Sprintf("h%d.example", i)}, "paths": []string{"/h"}, "strip_path": false})
			}
			content, err := json.Marshal(map[string]any{"_format_version": "3.0", "services": []any{map[string]any{"name": "a", "url": "http://a.internal", "routes": routes}}})
			if err != nil {
				t.Fatal(err)
			}
			d, err := moving.ReadKong("kong.json", content)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := moving.Kong(d); test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
