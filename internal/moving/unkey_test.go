package moving_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/moving"
)

// now is before the keys of the files expire that have not expired.
func now() time.Time { return time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC) }

func importUnkey(t *testing.T, name, scope string) *moving.Result {
	t.Helper()
	content, err := os.ReadFile("testdata/unkey/" + name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := moving.Unkey(moving.UnkeyConfig{Now: now(), Scope: scope}, name, content)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Guarantee: edge.md, section 5: pages of listKeys, of both versions, become keys with the limits, credits and expiry that
// they had, and the report says what did not.
func TestReportsOfUnkey(t *testing.T) {
	for _, name := range []string{"v1.json", "v2.json"} {
		t.Run(name, func(t *testing.T) {
			golden(t, "testdata/unkey/"+strings.TrimSuffix(name, ".json")+".golden", text(t, importUnkey(t, name, "")))
		})
	}
}

// Guarantee: a key with permissions is carried only with a scope that the user gives.
func TestScopeOfKeysOfUnkey(t *testing.T) {
	for _, scope := range []string{"", "read:documents"} {
		found := false
		for _, k := range importUnkey(t, "v2.json", scope).Keys {
			if found = found || k.KeyPrefix == "acme_44"; scope != "" && k.Scope != scope {
				t.Errorf("got a key with the scope %q, want %q", k.Scope, scope)
			}
		}
		if found != (scope != "") {
			t.Errorf("with --scope %q: got the key with permissions: %t", scope, found)
		}
	}
	if _, err := moving.Unkey(moving.UnkeyConfig{Now: now(), Scope: "everything"}, "v2.json", []byte("{}")); err == nil {
		t.Error("got no error for a scope that is none")
	}
}

// Guarantee: what is wrong with a file of Unkey is said with its line.
func TestMistakesInFilesOfUnkey(t *testing.T) {
	for content, want := range map[string]string{
		"":                            "the document is empty",
		"keys: []":                    "must be JSON",
		"{\"keys\": [\n3\n]}":         "line 2, column 1: must be a key, not a number",
		"{\"a\": 1}":                  "line 1, column 1: must be a page of listKeys",
		"{\"keys\": []}\n\n{\"b\":1}": "line 3, column 1: must be a page of listKeys",
		"{\"keys\": [":                "line 1",
		"{\"keys\": []}\n{\"keys\": [],\n\"keys\": []}": "line 3, column 1",
		"[[]]": "",
	} {
		_, err := moving.Unkey(moving.UnkeyConfig{Now: now()}, "pages.json", []byte(content))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", content, err, want)
		}
	}
}

// FuzzUnkey imports any text.
func FuzzUnkey(f *testing.F) {
	for _, name := range []string{"v1.json", "v2.json"} {
		content, err := os.ReadFile("testdata/unkey/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := moving.Unkey(moving.UnkeyConfig{Now: now()}, "pages.json", content)
		if err != nil {
			return
		}
		for _, k := range r.Keys {
			if len(k.SHA256) != 64 || k.Scope != "admin" {
				t.Errorf("got the key %+v", k)
			}
		}
	})
}
