package terminal

import (
	"bytes"
	"testing"

	"github.com/keygate/keygate/client"
)

// Guarantee: text from a server cannot move the cursor, start a line or change colours
// in a table.
func TestCleanReplacesControlCharacters(t *testing.T) {
	for in, want := range map[string]string{
		"": "-", "plain": "plain", "ärger €": "ärger €", "a\x1b[2Jb": "a\uFFFD[2Jb", "a\nb\tc\r": "a\uFFFDb\uFFFDc\uFFFD", "\u202eabc": "\uFFFDabc",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

// Guarantee: YAML output has the same fields as JSON, and strings stay strings.
func TestYAMLHasTheFieldsOfJSON(t *testing.T) {
	owner := "true"
	record := client.Key{KeyID: "key_1", Name: "a & b <c>", Owner: &owner, Metadata: map[string]string{"n": "1"}}
	for format, want := range map[string][]string{
		"json": {`"key_id": "key_1"`, `"name": "a & b <c>"`, `"owner": "true"`, `"gateway_id": null`},
		"yaml": {"key_id: key_1", "name: a & b <c>", `owner: "true"`, "gateway_id: null", `n: "1"`},
	} {
		var b bytes.Buffer
		c := &Console{Out: &b, Format: format}
		if err := c.PrintRecord(record, nil); err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if !bytes.Contains(b.Bytes(), []byte(part)) {
				t.Errorf("%s lacks %s:\n%s", format, part, &b)
			}
		}
	}
}
