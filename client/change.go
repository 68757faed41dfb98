package client

import "encoding/json"

// Change is a change to one field in an update: Set, Clear, or no change, which is
// the zero value.
type Change[T any] struct {
	present bool
	value   *T
}

// Set returns a Change that sets a field to v.
func Set[T any](v T) Change[T] { return Change[T]{true, &v} }

// Clear returns a Change that clears a field. The server refuses it with a 422 for
// a field that cannot be cleared.
func Clear[T any]() Change[T] { return Change[T]{present: true} }

// IsZero reports whether the field is unchanged. It makes the encoder omit the
// field.
func (c Change[T]) IsZero() bool { return !c.present }

// MarshalJSON returns the new value, or null if the field is cleared.
func (c Change[T]) MarshalJSON() ([]byte, error) { return json.Marshal(c.value) }

// UnmarshalJSON sets the field to a value, or clears it for null.
func (c *Change[T]) UnmarshalJSON(data []byte) error {
	c.present = true
	return json.Unmarshal(data, &c.value)
}
