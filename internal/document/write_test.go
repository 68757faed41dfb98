package document_test

import (
	"testing"

	"github.com/keygate/keygate/internal/document"
)

// Guarantee: a scalar on one line is replaced in place, however it is quoted, and nothing else changes; what is written in
// another way is left alone.
func TestReplaceScalar(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"# é\na: {b: pro, c: 1}\n", "# é\na: {b: null, c: 1}\n"},
		{"a:\n  b: \"pro\" # x\n", "a:\n  b: null # x\n"},
		{"\ufeffa:\n  b: 'pro'\n", "a:\n  b: null\n"},
		{`{"a": {"b": "pro"}}`, `{"a": {"b": null}}`},
		{`{"a": {"b": "\u0070ro"}}`, ""},
		{"a:\n  b: !!str pro\n", ""},
		{"a:\n  b: 5\n", ""},
	} {
		root, err := document.Parse([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		got, ok := document.ReplaceScalar([]byte(c.text), root.Member("a").Member("b"), "null")
		if string(got) != c.want || ok != (c.want != "") {
			t.Errorf("%q: got %q and %v, want %q", c.text, got, ok, c.want)
		}
	}
}
