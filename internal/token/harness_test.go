package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
)

// now is the present of the tests: 1 January 2026.
var now = time.Unix(1767225600, 0)

// signers are the private keys of the tests' issuer by kid. It has all of them but "other", and those of weak and p521
// are unusable.
var signers = sync.OnceValue(func() map[string]crypto.Signer {
	all := map[string]crypto.Signer{}
	for kid, bits := range map[string]int{"rsa": 2048, "other": 2048, "weak": 1024} {
		k, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			panic(err)
		}
		all[kid] = k
	}
	for kid, curve := range map[string]elliptic.Curve{"p256": elliptic.P256(), "p384": elliptic.P384(), "p521": elliptic.P521()} {
		k, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			panic(err)
		}
		all[kid] = k
	}
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	all["ed"] = k
	return all
})

// keySet returns the JWK Set with the public keys of signers, as the issuer publishes it. Some are restricted.
var keySet = sync.OnceValue(func() string {
	var set jose.JSONWebKeySet
	add := func(kid, signer, use, alg string) {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: signers()[signer].Public(), KeyID: kid, Use: use, Algorithm: alg})
	}
	for _, kid := range []string{"rsa", "weak", "p256", "p384", "p521", "ed"} {
		add(kid, kid, "", "")
	}
	add("rsa-enc", "other", "enc", "")
	add("rsa-512", "rsa", "sig", "RS512")
	text, err := json.Marshal(set)
	if err != nil {
		panic(err)
	}
	return string(text)
})

// sign signs input with the key of a signer, as the algorithm says. For one that nobody may use there are special
// signers: "hmac" takes the public RSA key for a shared secret.
func sign(t testing.TB, signer, alg, input string) []byte {
	t.Helper()
	digest := sha256.Sum256([]byte(input))
	sum, hash := digest[:], crypto.SHA256
	switch alg[max(0, len(alg)-3):] {
	case "384":
		d := sha512.Sum384([]byte(input))
		sum, hash = d[:], crypto.SHA384
	case "512":
		d := sha512.Sum512([]byte(input))
		sum, hash = d[:], crypto.SHA512
	}
	var signature []byte
	var err error
	switch k := signers()[signer].(type) {
	case *rsa.PrivateKey:
		if alg[:2] == "PS" {
			signature, err = rsa.SignPSS(rand.Reader, k, hash, sum, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
		} else {
			signature, err = rsa.SignPKCS1v15(rand.Reader, k, hash, sum)
		}
	case *ecdsa.PrivateKey:
		r, s, failed := ecdsa.Sign(rand.Reader, k, sum)
		size := (k.Curve.Params().BitSize + 7) / 8
		signature, err = make([]byte, 2*size), failed
		r.FillBytes(signature[:size])
		s.FillBytes(signature[size:])
	case ed25519.PrivateKey:
		signature = ed25519.Sign(k, []byte(input))
	default:
		signature = special(t, signer, input)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

// special makes signatures that are none.
func special(t testing.TB, signer, input string) []byte {
	t.Helper()
	switch signer {
	case "none":
		return nil
	case "zeros":
		return make([]byte, 64)
	case "hmac":
		der, err := x509.MarshalPKIXPublicKey(signers()["rsa"].Public())
		if err != nil {
			t.Fatal(err)
		}
		mac := hmac.New(sha256.New, der)
		mac.Write([]byte(input))
		return mac.Sum(nil)
	case "der": // ECDSA as in certificates
		digest := sha256.Sum256([]byte(input))
		signature, err := signers()["p256"].Sign(rand.Reader, digest[:], crypto.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		return signature
	default:
		t.Fatalf("there is no signer %q", signer)
		return nil
	}
}

// mint returns a compact token.
func mint(t testing.TB, signer, alg, header, claims string) string {
	t.Helper()
	input := encode(header) + "." + encode(claims)
	return input + "." + base64.RawURLEncoding.EncodeToString(sign(t, signer, alg, input))
}

func encode(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// record returns the issuer of the tests.
func record() *issuer.Issuer {
	return &issuer.Issuer{
		ID: "iss_1", AccountID: "acct_1", Name: "login",
		Settings: issuer.Settings{
			URL: "https://login.example.com/", JWKS: keySet(), Audiences: []string{"api", "https://api.example.com"},
			Algorithms: []jwk.Algorithm{jwk.RS256, jwk.RS512, jwk.PS256, jwk.ES256, jwk.ES384, jwk.EdDSA},
		},
	}
}

// compile returns the issuer that a change of the tests' record makes.
func compile(t testing.TB, change func(r *issuer.Issuer)) *Issuer {
	t.Helper()
	r := record()
	if change != nil {
		change(r)
	}
	i, err := NewIssuer(r, nil, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// valid returns a valid token with further claims, each with a comma in front.
func valid(t testing.TB, claims string) string {
	t.Helper()
	return mint(t, "ed", "EdDSA", `{"alg":"EdDSA","kid":"ed"}`,
		fmt.Sprintf(`{"iss":"https://login.example.com/","aud":"api","sub":"u1","exp":%d%s}`, now.Unix()+600, claims))
}
