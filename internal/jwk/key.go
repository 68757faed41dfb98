package jwk

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The bounds of a key.
const (
	minRSABits  = 2048
	maxRSABits  = 4096  // go-jose reads no larger one
	maxExponent = 65537 // of RSA: a larger one makes each verification slower
	maxID       = 255   // bytes of "kid"
)

// Key is one key of a set. It may be one that verifies nothing: then Unusable says why.
type Key struct {
	ID        string    // "kid"; "" for none
	Algorithm Algorithm // "alg"; "" for every algorithm of the key's kind
	kind      keyKind
	public    any    // of a type that go-jose verifies with
	unusable  string // why it verifies nothing; "" if it does
	foreign   bool   // it is unusable because it is for something else than tokens
}

// Unusable says why the key verifies no signature, as the rest of a sentence that begins with the key. It is "" for
// a key that does.
func (k *Key) Unusable() string { return k.unusable }

// Foreign reports whether the key is unusable because it is for something that Keygate does not do, such as encryption,
// or another algorithm. Providers have such keys in their sets.
func (k *Key) Foreign() bool { return k.foreign }

// forOthers marks the key as foreign.
func (k *Key) forOthers(format string, args ...any) (unusable string) {
	k.foreign = true
	return fmt.Sprintf(format, args...)
}

// Kind names the type of the key and its curve, as in "EC on P-256". It is "" for a key that is unusable.
func (k *Key) Kind() string { return string(k.kind) }

// Unfit says why the key does not verify signatures of algorithm a, as Unusable does. It is "" if the key does.
func (k *Key) Unfit(a Algorithm) string {
	switch {
	case k.unusable != "":
		return k.unusable
	case k.Algorithm != "" && k.Algorithm != a:
		return "is for " + string(k.Algorithm) + " alone"
	case k.kind != a.kind():
		return fmt.Sprintf("is a key of the type %s, and %s needs %s", k.kind, a, a.kind())
	default:
		return ""
	}
}

// Verify reports whether the key has signed a compact JWS with algorithm a, which must be that of its header. The
// key must be fit for a.
func (k *Key) Verify(a Algorithm, compact string) bool {
	if k.Unfit(a) != "" {
		return false
	}
	signed, err := jose.ParseSignedCompact(compact, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(a)})
	if err != nil {
		return false
	}
	_, err = signed.Verify(k.public)
	return err == nil
}

// parameters are the members of a JWK that Keygate reads. Numbers of the key are left to go-jose.
type parameters struct {
	kty, use, alg, crv string
	ops                []string // nil without "key_ops"
	numbers            map[string]jsontext.Value
}

// privateMembers returns the members of keys with which one can sign (RFC 7518, 6).
func privateMembers() []string { return []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"} }

// parseKey reads a key. It always returns one, which may be unusable.
func parseKey(content jsontext.Value) Key {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(content, &members); err != nil || members == nil {
		return Key{unusable: "is not an object"}
	}
	var k Key
	var p parameters
	for _, member := range []struct {
		name string
		to   *string
	}{{"kid", &k.ID}, {"kty", &p.kty}, {"use", &p.use}, {"alg", &p.alg}, {"crv", &p.crv}} {
		value, given := members[member.name]
		if given && json.Unmarshal(value, member.to) != nil || given && value.Kind() == 'n' {
			k.unusable = "has a member " + member.name + " that is not a string"
			return k
		}
	}
	if ops, given := members["key_ops"]; given {
		if err := json.Unmarshal(ops, &p.ops); err != nil || p.ops == nil {
			k.unusable = "has a member key_ops that is not a list of strings"
			return k
		}
	}
	k.Algorithm = Algorithm(p.alg)
	p.numbers = members
	k.unusable = k.read(&p)
	return k
}

// read makes the key from its members. It says why it is unusable.
func (k *Key) read(p *parameters) (unusable string) {
	for _, name := range privateMembers() {
		if _, given := p.numbers[name]; given {
			return "has the member " + name + ", which is secret: a set must have public keys only"
		}
	}
	switch {
	case len(k.ID) > maxID:
		k.ID = ""
		return fmt.Sprintf("has a kid of more than %d bytes", maxID)
	case p.use != "" && p.use != "sig":
		return k.forOthers("has the use %.20q, and not sig", p.use)
	case p.ops != nil && !slices.Contains(p.ops, "verify"):
		return k.forOthers("does not have verify among its key_ops")
	case k.Algorithm != "" && !k.Algorithm.Valid():
		alg := k.Algorithm
		k.Algorithm = ""
		return k.forOthers("is for the algorithm %.20q, which is not supported", string(alg))
	}
	return k.makePublic(p)
}

// makePublic sets the public key. It says why the key is unusable.
func (k *Key) makePublic(p *parameters) (unusable string) {
	var names []string
	switch p.kty {
	case "RSA":
		names = []string{"n", "e"}
	case "EC":
		names = []string{"x", "y"}
	case "OKP":
		names = []string{"x"}
	default:
		return k.forOthers("has the type %.20q, and not RSA, EC or OKP", p.kty)
	}
	key, err := p.fromNumbers(names)
	switch {
	case errors.Is(err, jose.ErrUnsupportedKeyType) && p.kty != "RSA":
		return k.forOthers("has the curve %.20q, and not P-256, P-384 or Ed25519", p.crv)
	case err != nil && !errors.Is(err, jose.ErrUnsupportedKeyType):
		return "is malformed: " + strings.Join(names, " and ") + " must be the numbers of a key in base64url"
	}
	if unusable := k.setPublic(p, key); unusable != "" {
		return unusable
	}
	if k.Algorithm != "" && k.Algorithm.kind() != k.kind {
		return fmt.Sprintf("is for %s, but has the type %s", k.Algorithm, k.kind)
	}
	return ""
}

// fromNumbers lets go-jose make the public key, from nothing but the type, the curve and the numbers.
func (p *parameters) fromNumbers(names []string) (any, error) {
	members := map[string]any{"kty": p.kty}
	if p.kty != "RSA" {
		members["crv"] = p.crv
	}
	for _, name := range names {
		value, given := p.numbers[name]
		if !given || value.Kind() != '"' {
			return nil, errors.New(name + " is missing")
		}
		members[name] = value
	}
	text, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	var key jose.JSONWebKey
	if err := key.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return key.Key, nil
}

// setPublic sets the public key if it is one that may verify tokens.
func (k *Key) setPublic(p *parameters, key any) (unusable string) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		bits := key.N.BitLen()
		if bits < minRSABits || bits > maxRSABits {
			return fmt.Sprintf("has %d bits: RSA keys must have %d to %d", bits, minRSABits, maxRSABits)
		}
		if key.E < 3 || key.E > maxExponent || key.E%2 == 0 || key.N.Bit(0) == 0 {
			return fmt.Sprintf("is malformed: e must be odd and between 3 and %d, and n odd", maxExponent)
		}
		k.kind = rsaKey
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			k.kind = p256Key
		case elliptic.P384():
			k.kind = p384Key
		default:
			return k.forOthers("has the curve %.20q, and not P-256, P-384 or Ed25519", p.crv)
		}
	case ed25519.PublicKey:
		k.kind = edKey
	default: // go-jose knows the type, but makes no key of these numbers
		return fmt.Sprintf("has too many bits: RSA keys must have %d to %d", minRSABits, maxRSABits)
	}
	k.public = key
	return ""
}
