package client

import "encoding/json"

// Change is what a PATCH does to one field. The zero value leaves the field as
// it is.
type Change[T any] struct {
	present bool
	value   *T
}

// Set returns the change of a field to v.
func Set[T any](v T) Change[T] { return Change[T]{true, &v} }

// Clear returns the change that removes a field's value.
func Clear[T any]() Change[T] { return Change[T]{present: true} }

// IsZero reports whether the field stays as it is; it keeps such fields out of
// the body.
func (c Change[T]) IsZero() bool { return !c.present }

// MarshalJSON writes the new value, or null.
func (c Change[T]) MarshalJSON() ([]byte, error) { return json.Marshal(c.value) }
