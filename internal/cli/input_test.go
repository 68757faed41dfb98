package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// zeros is a reader without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// Guarantee: input without an end is an error, and none is cut off in silence.
func TestInputIsBounded(t *testing.T) {
	if _, err := readBounded("standard input", zeros{}); err == nil || !strings.Contains(err.Error(), "standard input has more than 64 MiB") {
		t.Errorf("got %v, want an error of more than 64 MiB", err)
	}
	name := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int64]bool{maxInput: true, maxInput + 1: false} {
		if err := os.Truncate(name, size); err != nil { // sparse
			t.Fatal(err)
		}
		content, err := (&app{}).readInput(name)
		if ok := err == nil && int64(len(content)) == size; ok != want {
			t.Errorf("%d bytes: got %d and %v, want it read: %t", size, len(content), err, want)
		}
	}
}

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
