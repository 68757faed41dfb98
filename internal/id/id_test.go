package id_test

import (
	"sort"
	"testing"

	"github.com/keygate/keygate/internal/id"
	"pgregory.net/rapid"
)

// Guarantee: every 16 bytes have one text, and it reads back to the same bytes.
func TestFormatAndParseAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u [16]byte
		copy(u[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "u"))
		s := id.Format(id.Key, u)
		if len(s) != len("key_")+id.TextLen {
			t.Fatalf("length of %q is %d", s, len(s))
		}
		back, ok := id.Parse(id.Key, s)
		if !ok || back != u {
			t.Fatalf("%x became %q became %x, %v", u, s, back, ok)
		}
		if _, ok := id.Parse(id.Gateway, s); ok {
			t.Fatalf("%q was read as another kind", s)
		}
	})
}

// Guarantee: identifiers sort by the order in which one process made them.
func TestIdentifiersSortByTime(t *testing.T) {
	made := make([]string, 10_000)
	for i := range made {
		made[i] = id.New(id.Event)
	}
	if !sort.StringsAreSorted(made) {
		t.Fatal("identifiers made one after the other do not sort")
	}
}

// Guarantee: what is no identifier is refused, whatever it is.
func FuzzParse(f *testing.F) {
	f.Add("key_01jd0000000000000000000000")
	f.Add("key_81jd0000000000000000000000")
	f.Add("key_")
	f.Fuzz(func(t *testing.T, s string) {
		if u, ok := id.Parse(id.Key, s); ok && id.Format(id.Key, u) != s {
			t.Fatalf("%q was accepted but is written %q", s, id.Format(id.Key, u))
		}
	})
}
