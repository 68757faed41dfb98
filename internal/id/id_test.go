package id_test

import (
	"sort"
	"testing"

	"github.com/keygate/keygate/internal/id"
	"pgregory.net/rapid"
)

// Guarantee: every 16 bytes have one text, which parses to the same bytes.
func TestFormatAndParseAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u [16]byte
		copy(u[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "u"))
		s := id.Format(id.Key, u)
		if len(s) != len("key_")+id.TextLen {
			t.Fatalf("length of %q is %d, want %d", s, len(s), len("key_")+id.TextLen)
		}
		back, ok := id.Parse(id.Key, s)
		if !ok || back != u {
			t.Fatalf("Parse(%q) = %x, %v, want %x", s, back, ok, u)
		}
		if _, ok := id.Parse(id.Gateway, s); ok {
			t.Fatalf("%q was parsed as another kind", s)
		}
	})
}

// Guarantee: identifiers sort by the order in which one process created them.
func TestIdentifiersSortByTime(t *testing.T) {
	made := make([]string, 10_000)
	for i := range made {
		made[i] = id.New(id.Event)
	}
	if !sort.StringsAreSorted(made) {
		t.Fatal("identifiers do not sort in the order of their creation")
	}
}

// Guarantee: Parse accepts nothing but identifiers.
func FuzzParse(f *testing.F) {
	f.Add("key_01jd0000000000000000000000")
	f.Add("key_81jd0000000000000000000000")
	f.Add("key_")
	f.Fuzz(func(t *testing.T, s string) {
		if u, ok := id.Parse(id.Key, s); ok && id.Format(id.Key, u) != s {
			t.Fatalf("Parse accepted %q, but Format returns %q", s, id.Format(id.Key, u))
		}
	})
}
