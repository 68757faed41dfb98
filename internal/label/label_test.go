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
