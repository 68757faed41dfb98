package sqlite

import (
	"database/sql"

	"github.com/keygate/keygate/internal/store/stored"
)

// maybeText returns s as it is stored, but NULL for "".
func maybeText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// maybeJSON returns v as JSON, or NULL if none is true.
func maybeJSON(v any, none bool) (any, error) { return stored.MaybeJSON(v, none) }

// fromJSON decodes a result of maybeJSON. NULL does not change the target.
func fromJSON(s sql.NullString, to any) error { return stored.FromJSON(s, to) }
