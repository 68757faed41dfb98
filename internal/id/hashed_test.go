package id

import (
	"strings"
	"testing"
)

// Guarantee: an identifier of names is told from one of a record by how it begins, and differs for other names, however they
// are divided.
func TestHashed(t *testing.T) {
	seen := map[[16]byte]bool{}
	for _, names := range [][]string{{"token", "a", "b"}, {"token", "ab", ""}, {"token", "a\x00b"}, {"owner", "a", "b"}} {
		u := Hashed(names...)
		if seen[u] || u != Hashed(names...) || !strings.HasPrefix(Format(Key, u), "key_7zz") {
			t.Errorf("%q: got %s, want an identifier of its own that begins with key_7zz", names, Format(Key, u))
		}
		seen[u] = true
	}
	if strings.HasPrefix(New(Key), "key_7") {
		t.Error("got an identifier of a record that looks like a hash")
	}
}
