package jwk

import (
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The bounds of a set (docs/limits.md).
const (
	MaxBytes = 1 << 20 // of its JSON
	MaxKeys  = 100
)

// Set is the keys of an issuer, in the order of its document. It is immutable.
type Set struct{ keys []Key }

// ParseSet reads a JWK Set: JSON of RFC 8259 in UTF-8, whose objects have no member twice. Members of the set other
// than "keys" are passed over, and a key that verifies nothing stays in the set (Key.Unusable). The error says what is
// wrong with the set as a whole, as the rest of a sentence that begins with the set.
func ParseSet(content []byte) (*Set, error) {
	if len(content) > MaxBytes {
		return nil, fmt.Errorf("must have at most %d bytes", MaxBytes)
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(content, &members); err != nil || members == nil {
		return nil, errors.New("must be a JSON object in UTF-8, whose members have different names")
	}
	list, given := members["keys"]
	if !given || list.Kind() != '[' {
		return nil, errors.New("must have the list keys, as a JWK Set has")
	}
	var keys []jsontext.Value
	if err := json.Unmarshal(list, &keys); err != nil {
		return nil, errors.New("must have the list keys, as a JWK Set has")
	}
	if len(keys) > MaxKeys {
		return nil, fmt.Errorf("must have at most %d keys, and not %d", MaxKeys, len(keys))
	}
	s := &Set{keys: make([]Key, len(keys))}
	for i, key := range keys {
		s.keys[i] = parseKey(key)
	}
	return s, nil
}

// Keys returns the keys. The caller does not change them.
func (s *Set) Keys() []Key {
	if s == nil {
		return nil
	}
	return s.keys
}

// Named returns the keys with the identifier id.
func (s *Set) Named(id string) (named []*Key) {
	for i := range s.Keys() {
		if k := &s.keys[i]; k.ID == id {
			named = append(named, k)
		}
	}
	return named
}

// Fit returns the keys among candidates that verify algorithm a.
func Fit(candidates []*Key, a Algorithm) (fit []*Key) {
	for _, k := range candidates {
		if k.Unfit(a) == "" {
			fit = append(fit, k)
		}
	}
	return fit
}

// All returns pointers to all keys.
func (s *Set) All() []*Key {
	all := make([]*Key, len(s.Keys()))
	for i := range all {
		all[i] = &s.keys[i]
	}
	return all
}

// Document returns the keys that verify signatures as a JWK Set, with the members that say so and no others.
func (s *Set) Document() ([]byte, error) {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for i := range s.Keys() {
		if k := &s.keys[i]; k.unusable == "" {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.public, KeyID: k.ID, Algorithm: string(k.Algorithm), Use: "sig"})
		}
	}
	return json.Marshal(set)
}
