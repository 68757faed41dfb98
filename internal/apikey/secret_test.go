package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"regexp"
	"strings"
	"testing"
)

// Guarantee: key strings have the format of contract 3.1, checked against a regular
// expression and arithmetic with big integers.
func TestGenerate(t *testing.T) {
	for _, level := range []Level{GatewayLevel, AccountLevel, UserLevel} {
		tag := map[Level]string{GatewayLevel: "kg_", AccountLevel: "kga_", UserLevel: "kgs_"}[level]
		form := regexp.MustCompile("^" + tag + "[0-9A-Za-z]{36}$")
		for range 200 {
			s, err := Generate(level, rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			if !form.MatchString(s) {
				t.Fatalf("%s does not have the format of a key string", s)
			}
			if sum := s[len(s)-6:]; sum != checksumByHand(s[:len(s)-6]) {
				t.Fatalf("%s has the wrong checksum, want %s", s, checksumByHand(s[:len(s)-6]))
			}
			if l, prefix, ok := Inspect(s); !ok || l != level || prefix != s[:len(tag)+6] || PrefixOf(s) != prefix {
				t.Fatalf("Inspect(%s) = %q, %q, %v, want level %s", s, l, prefix, ok, level)
			}
			if DigestOf(s) != sha256.Sum256([]byte(s)) {
				t.Fatalf("the digest of %s is wrong", s)
			}
		}
	}
	if _, err := Generate(GatewayLevel, strings.NewReader("too short")); err == nil {
		t.Error("Generate without enough randomness succeeded, want an error")
	}
}

// checksumByHand returns the CRC-32 of s in base 62, most significant digit first.
func checksumByHand(s string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	n := big.NewInt(int64(crc32.ChecksumIEEE([]byte(s))))
	text := ""
	for range 6 {
		var digit big.Int
		n.DivMod(n, big.NewInt(62), &digit)
		text = digits[digit.Int64():][:1] + text
	}
	return text
}

// Guarantee: no string that differs from a key string in one character or in length is
// accepted, so it is refused without a lookup.
func TestTypos(t *testing.T) {
	for _, level := range []Level{GatewayLevel, AccountLevel, UserLevel} {
		s, err := Generate(level, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(s) {
			for _, c := range []byte{0, ' ', '-', '/', ':', '@', '[', '`', '{', 0x7f, 0x80, 0xff, 'a', 'Z', '0', s[i] ^ 0x20} {
				if typo := s[:i] + string([]byte{c}) + s[i+1:]; typo != s && PrefixOf(typo) != "" {
					t.Errorf("%q was accepted as a key string", typo)
				}
			}
		}
		for _, other := range []string{"", s[1:], s[:len(s)-1], s + "a", " " + s, strings.Repeat(s, 2), strings.ToUpper(s)} {
			if _, ok := LevelOf(other); ok {
				t.Errorf("%q was accepted as a key string", other)
			}
		}
		if n := testing.AllocsPerRun(100, func() { Inspect(s); DigestOf(s) }); n != 0 {
			t.Errorf("Inspect and DigestOf allocate %v times, want 0", n)
		}
	}
}

// Guarantee: exactly the strings with the format and checksum of a key string are accepted.
func FuzzKeyString(f *testing.F) {
	f.Add("kg_000000000000000000000000000000000000")
	f.Add("kga_00000000000000000000000000000000000")
	f.Add("kgs_000000000000000000000000000000000000")
	good, err := Generate(GatewayLevel, rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	form := regexp.MustCompile("^kg[as]?_[0-9A-Za-z]{36}$")
	f.Fuzz(func(t *testing.T, s string) {
		l, prefix, ok := Inspect(s)
		if want := form.MatchString(s) && checksumByHand(s[:len(s)-6]) == s[len(s)-6:]; ok != want {
			t.Fatalf("Inspect(%q): got ok %v, want %v", s, ok, want)
		}
		if ok && (!l.Valid() && l != UserLevel || !strings.HasPrefix(s, prefix)) || !ok && (l != "" || prefix != "") {
			t.Fatalf("Inspect(%q) = %q, %q, %v, want a valid level and prefix only if ok", s, l, prefix, ok)
		}
	})
}
