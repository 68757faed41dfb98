package validate

import (
	"archive/zip"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// suiteCase is a group of the suite: a schema, and values with whether they meet it.
type suiteCase struct {
	Description string
	Schema      any
	Tests       []struct {
		Description string
		Data        json.RawMessage
		Valid       bool
	}
}

// decode decodes JSON as the compiler gets it.
func decode(t testing.TB, text string, into any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// suite returns the files of JSON Schema's test suite: the remote schemas by their URLs, and the groups by their files.
func suite(t testing.TB) (remotes map[string]any, files map[string][]suiteCase) {
	t.Helper()
	archive, err := zip.OpenReader("testdata/suite.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	remotes, files = map[string]any{}, map[string][]suiteCase{}
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if name, ok := strings.CutPrefix(f.Name, "remotes/"); ok {
			var doc any
			decode(t, string(text), &doc)
			remotes["http://localhost:1234/"+name] = doc
		} else if name, ok := strings.CutPrefix(f.Name, "tests/draft2020-12/"); ok {
			var groups []suiteCase
			decode(t, string(text), &groups)
			files[name] = groups
		}
	}
	return remotes, files
}

// outside are the files of the suite's optional part that Keygate does not pass, with the reasons.
var outside = map[string]string{
	"optional/format-assertion.json": "format is an annotation",
	"optional/cross-draft.json":      "schemas of other versions of JSON Schema leave an operation unchecked",
}

// Guarantee: JSON Schema's test suite for 2020-12 passes whole, and its optional part except for formats and other versions
// (edge.md, section 6). The suite is commit 44401e0c of github.com/json-schema-org/JSON-Schema-Test-Suite, under its LICENSE.
func TestSuite(t *testing.T) {
	remotes, files := suite(t)
	total := 0
	for name, groups := range files {
		if outside[name] != "" {
			continue
		}
		for _, g := range groups {
			e := newEngine(patterns{})
			for url, doc := range remotes {
				if err := e.add(url, doc); err != nil {
					t.Fatal(err)
				}
			}
			const url = "http://localhost:1234/schema.json"
			if err := e.add(url, g.Schema); err != nil {
				t.Fatal(err)
			}
			s := &schema{}
			e.root = s
			err := e.compile(url)
			if err == nil {
				settle(e.created, func(_ *schema, bad error) { err = bad })
			}
			if err != nil {
				t.Errorf("%s: %s: got %v, want a schema", name, g.Description, err)
				continue
			}
			for _, c := range g.Tests {
				v, err := parseJSON(c.Data)
				if err != nil {
					t.Errorf("%s: %s: %s: got %v, want a value", name, g.Description, c.Description, err)
					continue
				}
				total++
				var r run
				if got := r.eval(s, v, nil, nil); got != c.Valid || r.exceeded || got != (len(r.problems) == 0) {
					t.Errorf("%s: %s: %s: got %t with %v, want %t", name, g.Description, c.Description, got, r.problems, c.Valid)
				}
				var quiet run
				if got := quiet.isValid(s, v, nil, nil); got != c.Valid {
					t.Errorf("%s: %s: %s: got %t without problems, want %t", name, g.Description, c.Description, got, c.Valid)
				}
			}
		}
	}
	if len(files["ref.json"]) == 0 || total < 1200 {
		t.Errorf("got %d cases, want the whole suite", total)
	}
}
