package rows

import (
	"fmt"
)

// ConflictMessage returns the public message for a record whose field, or "" for its identity, is
// taken by another.
func ConflictMessage(field string) string {
	if field == "" {
		return "a record with the same identity already exists"
	}
	return fmt.Sprintf("another record already has this %s: choose a different one", field)
}
