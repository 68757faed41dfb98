package cli

import (
	"strings"
	"testing"
)

// Guarantee: a key is read from a file whatever its editor puts around it, and a file in another encoding is
// refused without repeating it.
func TestKeyInAFile(t *testing.T) {
	const key = "kga_0123456789012345678901234567890123456"
	for _, content := range []string{key, key + "\n", key + "\r\n", "\ufeff" + key + "\r\n", "  " + key + "\t\n"} {
		if got, err := keyIn("k", []byte(content)); err != nil || got != key {
			t.Errorf("%q: got %q, %v; want the key", content, got, err)
		}
	}
	for _, content := range []string{"\xff\xfek\x00g\x00a\x00", key + "\n" + key, "the key " + key, "“" + key + "”"} {
		if got, err := keyIn("k", []byte(content)); err == nil || got != "" || strings.Contains(err.Error(), "kga_") || exitCode(err) != exitUnauthorized {
			t.Errorf("%q: got %q, %v; want an error without the key", content, got, err)
		}
	}
}
