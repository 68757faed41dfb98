package terminal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// zeros is a reader without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// Guarantee: input without an end is an error. No input is cut off silently.
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
		content, err := (&Console{}).ReadInput(name)
		if ok := err == nil && int64(len(content)) == size; ok != want {
			t.Errorf("%d bytes: got %d and %v, want it read: %t", size, len(content), err, want)
		}
	}
}
