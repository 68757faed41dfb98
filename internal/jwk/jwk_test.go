package jwk

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// member is the JSON of a public key, or of a private one, with further members, each with a comma in front.
func member(t testing.TB, key any, more string) string {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKey{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(text), "}") + more + "}"
}

func parseOne(t testing.TB, key string) *Key {
	t.Helper()
	s, err := ParseSet([]byte(`{"keys":[` + key + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return &s.Keys()[0]
}

// number returns a number as members of keys have it.
func number(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }

// Guarantee: a key verifies only what its type, curve, use and "alg" say, and says why it verifies nothing else.
func TestFitness(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	curve := func(c elliptic.Curve) *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	p256, p384, p521 := curve(elliptic.P256()), curve(elliptic.P384()), curve(elliptic.P521())
	ed, edPrivate, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ofRSA := func(n, e *big.Int) string { return fmt.Sprintf(`{"kty":"RSA","n":%q,"e":%q}`, number(n), number(e)) }
	const allRSA = "RS256 RS384 RS512 PS256 PS384 PS512"
	for _, tc := range []struct{ key, fit, unusable string }{
		{member(t, r.Public(), ``), allRSA, ""},
		{member(t, r.Public(), `,"use":"sig","key_ops":["sign","verify"]`), allRSA, ""},
		{member(t, r.Public(), `,"x5c":["junk"],"x5t":"junk","x5u":7`), allRSA, ""}, // go-jose would refuse these
		{member(t, r.Public(), `,"alg":"PS384"`), "PS384", ""},
		{member(t, r.Public(), `,"alg":"ES256"`), "", "is for ES256, but has the type RSA"},
		{member(t, r.Public(), `,"alg":"RSA-OAEP"`), "", `is for the algorithm "RSA-OAEP", which is not supported`},
		{member(t, r.Public(), `,"alg":"HS256"`), "", `is for the algorithm "HS256", which is not supported`},
		{member(t, r.Public(), `,"use":"enc"`), "", `has the use "enc", and not sig`},
		{member(t, r.Public(), `,"key_ops":["encrypt"]`), "", "does not have verify among its key_ops"},
		{member(t, r.Public(), `,"key_ops":[]`), "", "does not have verify among its key_ops"},
		{member(t, r.Public(), `,"key_ops":"verify"`), "", "has a member key_ops that is not a list of strings"},
		{member(t, r.Public(), `,"key_ops":null`), "", "has a member key_ops that is not a list of strings"},
		{member(t, r.Public(), `,"kid":1`), "", "has a member kid that is not a string"},
		{member(t, r.Public(), `,"use":null`), "", "has a member use that is not a string"},
		{member(t, r.Public(), `,"kid":"`+strings.Repeat("k", 256)+`"`), "", "has a kid of more than 255 bytes"},
		{member(t, r, ``), "", "has the member d, which is secret: a set must have public keys only"},
		{member(t, edPrivate, ``), "", "has the member d, which is secret: a set must have public keys only"},
		{`{"kty":"oct","k":"c2VjcmV0"}`, "", "has the member k, which is secret: a set must have public keys only"},
		{member(t, weak.Public(), ``), "", "has 1024 bits: RSA keys must have 2048 to 4096"},
		{ofRSA(new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), 4096), big.NewInt(1)), big.NewInt(65537)), "", "has too many bits: RSA keys must have 2048 to 4096"},
		{ofRSA(new(big.Int).Lsh(big.NewInt(1), 200_000), big.NewInt(65537)), "", "has too many bits: RSA keys must have 2048 to 4096"},
		{ofRSA(r.N, big.NewInt(1)), "", "is malformed: n and e must be the numbers of a key in base64url"},
		{ofRSA(r.N, big.NewInt(4)), "", "is malformed: e must be odd and between 3 and 65537, and n odd"},
		{ofRSA(r.N, big.NewInt(65539)), "", "is malformed: e must be odd and between 3 and 65537, and n odd"},
		{ofRSA(new(big.Int).Add(r.N, big.NewInt(1)), big.NewInt(3)), "", "is malformed: e must be odd and between 3 and 65537, and n odd"},
		{`{"kty":"RSA","n":"AQAB"}`, "", "is malformed: n and e must be the numbers of a key in base64url"},
		{`{"kty":"RSA","n":7,"e":"AQAB"}`, "", "is malformed: n and e must be the numbers of a key in base64url"},
		{member(t, p256.Public(), ``), "ES256", ""},
		{member(t, p384.Public(), ``), "ES384", ""},
		{member(t, p384.Public(), `,"alg":"ES256"`), "", "is for ES256, but has the type EC on P-384"},
		{member(t, p521.Public(), ``), "", `has the curve "P-521", and not P-256, P-384 or Ed25519`},
		{`{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}`, "", `has the curve "secp256k1", and not P-256, P-384 or Ed25519`},
		{strings.Replace(member(t, p256.Public(), ``), "P-256", "P-384", 1), "", "is malformed: x and y must be the numbers of a key in base64url"},
		{fmt.Sprintf(`{"kty":"EC","crv":"P-256","x":%q,"y":%q}`, number(p256.X), number(p256.X)), "", "is malformed: x and y must be the numbers of a key in base64url"},
		{member(t, ed, ``), "EdDSA", ""},
		{member(t, ed, `,"alg":"EdDSA"`), "EdDSA", ""},
		{`{"kty":"OKP","crv":"Ed25519","x":"AAAA"}`, "", "is malformed: x must be the numbers of a key in base64url"},
		{`{"kty":"OKP","crv":"Ed448","x":"AAAA"}`, "", `has the curve "Ed448", and not P-256, P-384 or Ed25519`},
		{`{"kty":"OKP","crv":"X25519","x":"AAAA"}`, "", `has the curve "X25519", and not P-256, P-384 or Ed25519`},
		{`{"kty":"AKP","alg":"ML-DSA-44","pub":"AAAA"}`, "", `is for the algorithm "ML-DSA-44", which is not supported`},
		{`{"kty":"new"}`, "", `has the type "new", and not RSA, EC or OKP`},
		{`{"kty":"rsa","n":"AQAB","e":"AQAB"}`, "", `has the type "rsa", and not RSA, EC or OKP`},
		{`{}`, "", `has the type "", and not RSA, EC or OKP`},
		{`null`, "", "is not an object"},
		{`"key"`, "", "is not an object"},
	} {
		k := parseOne(t, tc.key)
		var fit []string
		for _, a := range Algorithms() {
			if k.Unfit(a) == "" {
				fit = append(fit, string(a))
			}
		}
		if got := strings.Join(fit, " "); got != tc.fit || k.Unusable() != tc.unusable {
			t.Errorf("%.300s: got fit for %q, unusable: %q; want %q, %q", tc.key, got, k.Unusable(), tc.fit, tc.unusable)
		}
	}
}

// Guarantee: a key for something else is told from one that was meant to verify tokens and does not.
func TestForeign(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for key, foreign := range map[string]bool{
		member(t, r.Public(), ``): false, member(t, r.Public(), `,"use":"enc"`): true, member(t, r.Public(), `,"alg":"RSA-OAEP"`): true,
		member(t, r.Public(), `,"key_ops":["wrapKey"]`): true, `{"kty":"new"}`: true, `{"kty":"OKP","crv":"X25519","x":"AAAA"}`: true,
		`{"kty":"oct","k":"c2VjcmV0"}`: false, member(t, r, ``): false, `7`: false, `{"kty":"RSA","n":"AQAB","e":"AQAB"}`: false,
	} {
		if k := parseOne(t, key); k.Foreign() != foreign {
			t.Errorf("%.80s: got foreign %v", key, k.Foreign())
		}
	}
}

// Guarantee: a set is strict JSON with the list of its keys, and has bounds.
func TestParseSet(t *testing.T) {
	many := func(n int) string { return `{"keys":[` + strings.TrimSuffix(strings.Repeat("{},", n), ",") + `]}` }
	for _, text := range []string{`{"keys":[]}`, ` {"x":{"keys":1},"keys":[{}]} `, many(MaxKeys)} {
		if _, err := ParseSet([]byte(text)); err != nil {
			t.Errorf("%.60s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		``: "must be a JSON object", `[]`: "must be a JSON object", `null`: "must be a JSON object", `{"keys":[]`: "must be a JSON object",
		`{"keys":[],"keys":[]}`: "different names", `{"keys":[{"kty":"RSA","kty":"EC"}]}`: "different names", "{\"keys\":[\"\xff\"]}": "in UTF-8",
		`{}`: "the list keys", `{"Keys":[]}`: "the list keys", `{"keys":{}}`: "the list keys", `{"keys":null}`: "the list keys",
		many(MaxKeys + 1): "at most 100 keys, and not 101", `{"keys":[]` + strings.Repeat(" ", MaxBytes) + `}`: "at most 1048576 bytes",
	} {
		if _, err := ParseSet([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want an error that contains %q", text, err, want)
		}
	}
}

// Guarantee: keys are found by their exact kid; keys that share one are all found.
func TestNamed(t *testing.T) {
	s, err := ParseSet([]byte(`{"keys":[{"kid":"a","kty":"1"},{"kid":"A"},{"kid":"a","kty":"2"},{}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var none *Set
	if len(s.Named("a")) != 2 || len(s.Named("A")) != 1 || len(s.Named("b")) != 0 || len(s.All()) != 4 || len(none.Named("a"))+len(none.All()) != 0 {
		t.Errorf("got %d, %d, %d of %d keys", len(s.Named("a")), len(s.Named("A")), len(s.Named("b")), len(s.All()))
	}
}

// FuzzParseSet checks that no document makes the parser fail, and that a key says either why it is unusable or what it
// verifies.
func FuzzParseSet(f *testing.F) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		f.Fatal(err)
	}
	for _, key := range []string{member(f, r.Public(), `,"kid":"a","alg":"RS256"`), `{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}`, `{"kty":"OKP","crv":"Ed25519","x":"AA"}`, `{"kty":"AKP"}`} {
		f.Add([]byte(`{"keys":[` + key + `]}`))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		s, err := ParseSet(content)
		if err != nil {
			return
		}
		for i := range s.Keys() {
			k := &s.Keys()[i]
			fit := false
			for _, a := range Algorithms() {
				fit = fit || k.Unfit(a) == ""
			}
			if fit == (k.Unusable() != "") {
				t.Errorf("key %d fits an algorithm: %v, unusable: %q", i, fit, k.Unusable())
			}
		}
	})
}

// BenchmarkLargestKey is a verification with the largest key that is accepted.
func BenchmarkLargestKey(b *testing.B) {
	n := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), maxRSABits), big.NewInt(1))
	k := parseOne(b, fmt.Sprintf(`{"kty":"RSA","n":%q,"e":%q}`, number(n), number(big.NewInt(maxExponent))))
	signature := make([]byte, maxRSABits/8)
	signature[len(signature)-1] = 2
	encode := base64.RawURLEncoding.EncodeToString
	compact := encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte("{}")) + "." + encode(signature)
	for b.Loop() {
		k.Verify(RS256, compact)
	}
}
