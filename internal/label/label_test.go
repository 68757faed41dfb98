package label_test

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/label"
)

// Guarantee: a name has at least one visible character, and no invisible ones, in any script.
func TestCheckName(t *testing.T) {
	for _, name := range []string{
		"a", " a ", "orders (EU)", "Größe", "注文", "مرحبا", "می\u200cخواهم", "👩\u200d💻", "❤\ufe0f", "e\u0301", strings.Repeat("ü", 255),
	} {
		if err := label.CheckName("name", name); err != nil {
			t.Errorf("%q: got %v, want no error", name, err)
		}
	}
	for _, name := range []string{
		"", " ", "\u3000\u00a0", "\u3164", "\u200b", "\u200d", "a\x00", "a\nb", "a\u0085", "a\u202eb", "\u200ea", "a\u200f", "a\u2066b\u2069",
		"a\u061cb", "a\u200bb", "a\u200db", "a\u2060", "\ufeffa", "a\u00adb", "a\u2028b", "a\u2029", "a\U000e0041", "a\xff", strings.Repeat("a", 256),
	} {
		if err := label.CheckName("name", name); err == nil {
			t.Errorf("%q: got no error, want one", name)
		}
	}
}

// Guarantee: docs/limits.md, metadata has at most 16 properties with names of 1 to 64 bytes and values of at most 255.
func TestMetadataIsBounded(t *testing.T) {
	numbered := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[strings.Repeat("n", i+1)] = "v"
		}
		return m
	}
	name, value := strings.Repeat("n", 64), strings.Repeat("v", 255)
	for _, m := range []map[string]string{nil, numbered(16), {name: value}, {strings.Repeat("ü", 32): strings.Repeat("ü", 127)}, {"n": ""}} {
		if err := label.CheckMetadata("metadata", m); err != nil {
			t.Errorf("%.40q: got %v, want no error", m, err)
		}
	}
	for _, m := range []map[string]string{numbered(17), {name + "n": ""}, {"": "v"}, {"n": value + "v"}, {"n": strings.Repeat("ü", 128)}} {
		if err := label.CheckMetadata("metadata", m); err == nil {
			t.Errorf("%.40q: got no error, want one", m)
		}
	}
}

// Guarantee: names and values of metadata contain no direction marks, so that none looks like another one. Values may have several
// lines.
func TestMetadataHasNoDirectionMarks(t *testing.T) {
	for _, value := range []string{"", "a", "two\nlines", "مرحبا", "می\u200cخواهم"} {
		if err := label.CheckMetadata("metadata", map[string]string{"note": value}); err != nil {
			t.Errorf("%q: got %v, want no error", value, err)
		}
	}
	for _, r := range "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069" {
		for name, value := range map[string]string{"note": "a" + string(r) + "b", "a" + string(r): ""} {
			if err := label.CheckMetadata("metadata", map[string]string{name: value}); err == nil {
				t.Errorf("%q: %q: got no error, want one", name, value)
			}
		}
	}
}
