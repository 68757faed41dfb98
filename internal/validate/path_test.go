package validate

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: a parameter of a path has the text that stands at its position, and of several in a segment each but the last
// is as short as can be.
func TestValuesOfPaths(t *testing.T) {
	for _, c := range []struct{ template, path, want string }{
		{"/users/{id}", "/users/7", "id=7"},
		{"/users/{id}/x/{b}", "/users/a%2Fb/x/", "id=a%2Fb b=?"},
		{"/v1/{a}-{b}.json", "/v1/x-y-z.json", "a=x b=y-z"},
		{"/v1/{a}-{b}", "/v1/--z", "a=- b=z"},
		{"/f/{id}.json", "/f/a.json.json", "id=a.json"},
		{"/f/x{id}", "/f/xx", "id=x"},
		{"/{a}...{b}/{c}", "/1...2/3", "a=1 b=2 c=3"},
		{"/{a}", "/", "a=?"},
		{"/f/{id}.json", "/f/a", "id=?"},
		{"/files/{id}/*", "/files/5/a/b", "id=5"},
		{"/%61é{id}", "/a%C3%A9x", "id=x"},
	} {
		parsed := parseTemplate(c.template)
		var got []string
		for _, name := range strings.Fields(c.want) {
			name, _, _ = strings.Cut(name, "=")
			raw, ok := parsed.value(c.path, name)
			if !ok {
				raw = "?"
			}
			got = append(got, name+"="+raw)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s of %s: got %s, want %s", c.template, c.path, got, c.want)
		}
	}
}

// FuzzPath looks for a path with which finding a parameter panics, or one that its template matches and that has no text
// for a parameter.
func FuzzPath(f *testing.F) {
	f.Add("/a/{b}-{c}.x/{d}", "/a/1-2.x/3")
	f.Add("/{a}{b}", "/xy")
	f.Fuzz(func(t *testing.T, text, path string) {
		of, err := gateway.ParseTemplate(text)
		if err != nil {
			return
		}
		parsed := parseTemplate(text)
		path = gateway.NormalizePath(nil, path)
		for _, s := range parsed.segments {
			for _, name := range s.names {
				raw, ok := parsed.value(path, name)
				if !ok && of.Matches(path) {
					t.Fatalf("%s of %s: got no text for %s, and the template matches", text, path, name)
				}
				if strings.Contains(raw, "/") {
					t.Fatalf("%s of %s: got %q for %s, want one segment", text, path, raw, name)
				}
			}
		}
	})
}
