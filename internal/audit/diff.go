package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// MaxDiffValue is the maximum size of a value of a diff, in bytes of its JSON. The log has an
// Omitted instead of a larger value.
const MaxDiffValue = 4 << 10

// Omitted is shown in a diff in the place of a value that is larger than MaxDiffValue.
type Omitted struct {
	// The fields are in the order of their names, so that decoding and encoding changes nothing.
	Bytes   int    `json:"bytes"`   // of the value as JSON with sorted keys and without white space
	Omitted bool   `json:"omitted"` // true
	SHA256  string `json:"sha256"`  // of the same bytes, in hexadecimal
}

// EncodeDiff encodes a diff as JSON. Values that are too large are omitted.
func EncodeDiff(d Diff) ([]byte, error) {
	b, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode the diff of an audit record: %w", err)
	}
	if len(b) <= MaxDiffValue {
		return b, nil
	}
	bounded, err := decodeBounded(b)
	if err != nil {
		return nil, err
	}
	if b, err = json.Marshal(bounded); err != nil {
		return nil, fmt.Errorf("encode the diff of an audit record: %w", err)
	}
	return b, nil
}

// DecodeDiff decodes what EncodeDiff returned. It keeps numbers as they were written.
func DecodeDiff(b []byte) (Diff, error) {
	var d Diff
	if err := decodeExactly(b, &d); err != nil {
		return nil, fmt.Errorf("decode the diff of an audit record: %w", err)
	}
	return d, nil
}

func decodeBounded(b []byte) (Diff, error) {
	var raw map[string][2]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("decode the diff of an audit record: %w", err)
	}
	if raw == nil {
		return nil, nil
	}
	d := make(Diff, len(raw))
	for name, values := range raw {
		var pair [2]any
		for i, value := range values {
			var err error
			if pair[i], err = decodeValue(value); err != nil {
				return nil, fmt.Errorf("decode the value %q of an audit record's diff: %w", name, err)
			}
		}
		d[name] = pair
	}
	return d, nil
}

// decodeValue decodes one value of a diff, or returns an Omitted.
func decodeValue(raw json.RawMessage) (value any, err error) {
	if raw == nil { // an absent item of the pair
		return nil, nil
	}
	if err := decodeExactly(raw, &value); err != nil || len(raw) <= MaxDiffValue {
		return value, err
	}
	plain, err := plainJSON(value)
	if err != nil || len(plain) <= MaxDiffValue {
		return value, err
	}
	sum := sha256.Sum256(plain)
	return Omitted{Omitted: true, Bytes: len(plain), SHA256: hex.EncodeToString(sum[:])}, nil
}

// plainJSON encodes a decoded value as jq -cjS prints it: without white space, with sorted keys, and with
// only the necessary escapes.
func plainJSON(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func decodeExactly(b []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(to)
}
