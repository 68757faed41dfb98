package apikey

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Guarantee: a digest is parsed from each form in which programs write it, and from no other text.
func TestParseDigest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
		for _, s := range []string{
			hex.EncodeToString(want[:]), strings.ToUpper(hex.EncodeToString(want[:])), base64.StdEncoding.EncodeToString(want[:]),
			base64.RawStdEncoding.EncodeToString(want[:]), base64.URLEncoding.EncodeToString(want[:]), base64.RawURLEncoding.EncodeToString(want[:]),
		} {
			got, err := ParseDigest("sha256", s)
			if err != nil || got != want {
				t.Fatalf("ParseDigest(%q) = %x, %v, want %x", s, got, err, want)
			}
			for _, bad := range []string{s[1:], s + "0", s[:20] + "\n" + s[20:], " " + s, s[:len(s)/2]} {
				if _, err := ParseDigest("sha256", bad); err == nil {
					t.Fatalf("ParseDigest(%q) succeeded, want an error", bad)
				}
			}
		}
	})
}

// Guarantee: a key that may be imported has 16 to 512 printable characters and not the form of Keygate's keys; whatever passes
// the check of an import is looked up.
func TestImportedStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(
			rapid.StringOfN(rapid.RuneFrom([]rune("aZ09-_.~!{}")), 0, 600, -1), rapid.StringN(0, 60, -1),
			rapid.StringMatching(`kga?_[0-9A-Za-z]{35,37}`),
		).Draw(t, "string")
		printable := strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
		_, _, own := Peek(s)
		want := printable && len(s) >= 16 && len(s) <= 512 && !own
		if got := CheckImported("key", s) == nil; got != want {
			t.Fatalf("CheckImported(%q) passes: %v, want %v", s, got, want)
		}
		if got := CheckImportedClear("key", s) == nil; got != (want && len(s) >= 22) {
			t.Fatalf("CheckImportedClear(%q) passes: %v", s, got)
		}
		if want && !MayBeImported(s) {
			t.Fatalf("%q passes the check and is not looked up", s)
		}
		if own && MayBeImported(s) {
			t.Fatalf("%q has the form of a key and is looked up as an imported one", s)
		}
	})
}

// Guarantee: a string has another digest in each account, and none that an own key can have.
func TestImportedDigest(t *testing.T) {
	d := DigestOf("a key of another gateway")
	one, two := ImportedDigest([16]byte{1}, d), ImportedDigest([16]byte{2}, d)
	if one == two || one == d || one == DigestOf(string(d[:])) {
		t.Error("the digest of an imported key is not bound to its account")
	}
	if n := testing.AllocsPerRun(100, func() {
		ImportedDigest([16]byte{1}, DigestOf("a key of another gateway, longer than any of Keygate's"))
	}); n != 0 {
		t.Errorf("a look-up allocates %v times, want none", n)
	}
}
