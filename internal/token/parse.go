package token

import (
	"encoding/base64"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keygate/keygate/internal/jwk"
)

// MaxBytes is the most bytes of a token.
const MaxBytes = 8 << 10

// Token is a token whose form is right. Nothing that it says is verified.
type Token struct {
	compact   string
	header    object
	claims    object
	Algorithm jwk.Algorithm
}

// object is a JSON object. Names are compared exactly, with case.
type object map[string]jsontext.Value

// Parse parses a token in compact form: three parts in base64url without padding, of which the first two are JSON
// objects in UTF-8 (RFC 8259) without duplicate names at any depth, and a header that says nothing of how to verify it
// but "alg", "kid" and "typ".
func Parse(compact string) (*Token, *Refusal) {
	if len(compact) > MaxBytes {
		return nil, refuse(TooLong, "")
	}
	header, rest, _ := strings.Cut(compact, ".")
	claims, signature, found := strings.Cut(rest, ".")
	if !found || header == "" || claims == "" || strings.Contains(signature, ".") {
		return nil, refuse(NotCompact, "")
	}
	t := &Token{compact: compact}
	var parts [3][]byte
	for i, part := range []string{header, claims, signature} {
		var ok bool
		if parts[i], ok = decode(part); !ok {
			return nil, refuse(NotBase64URL, "%s", [...]string{"the header", "the claims", "the signature"}[i])
		}
	}
	var ok bool
	if t.header, ok = parseObject(parts[0]); !ok {
		return nil, refuse(NotJSON, "the header")
	}
	if t.claims, ok = parseObject(parts[1]); !ok {
		return nil, refuse(NotJSON, "the claims")
	}
	return t, t.checkHeader()
}

// decode decodes base64url without padding, line breaks, or bits that are left over.
func decode(part string) (decoded []byte, ok bool) {
	if strings.ContainsAny(part, "\r\n") { // which the decoder passes over
		return nil, false
	}
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(part)
	return decoded, err == nil
}

// parseObject parses a JSON object.
func parseObject(content []byte) (o object, ok bool) {
	err := json.Unmarshal(content, &o)
	return o, err == nil && o != nil // null is no object
}

// checkHeader checks the members of the header that say how to verify the token.
func (t *Token) checkHeader() *Refusal {
	// Each of these lets a token choose how it is verified, or asks for what is not supported.
	for _, name := range [...]string{"crit", "jku", "x5u", "jwk", "b64"} {
		if _, given := t.header[name]; given {
			return refuse(HeaderRefused, "%s", name)
		}
	}
	name, ok := t.header.text("alg")
	if !ok {
		return refuse(AlgorithmRefused, "the header has no alg, or one that is not a string")
	}
	if t.Algorithm = jwk.Algorithm(name); !t.Algorithm.Valid() {
		return refuse(AlgorithmRefused, "%s is not supported", quoted(name))
	}
	return nil
}

// text returns the string with the name.
func (o object) text(name string) (text string, ok bool) { return textOf(o[name]) }

// textOf returns the string that value is.
func textOf(value jsontext.Value) (text string, ok bool) {
	ok = value.Kind() == '"' && json.Unmarshal(value, &text) == nil
	return text, ok
}

// find returns a claim: the member with the name or, if there is none, what is at the path of names that dots join.
func (o object) find(name string) (value jsontext.Value, found bool) {
	if value, found = o[name]; found {
		return value, true
	}
	for {
		first, rest, isPath := strings.Cut(name, ".")
		if value, found = o[first]; !found || !isPath {
			return value, found
		}
		if value.Kind() != '{' {
			return nil, false
		}
		inner, ok := parseObject(value)
		if !ok {
			return nil, false
		}
		o, name = inner, rest
	}
}
