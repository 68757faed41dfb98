package postgres

import (
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/store/stored"
)

// micros returns a time as it is stored: in microseconds since 1970.
func micros(t time.Time) int64 { return t.UnixMicro() }

// instant returns the time of a stored number of microseconds.
func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

// maybeMicros is micros, but NULL for the zero time.
func maybeMicros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// maybeInstant is instant, but the zero time for NULL.
func maybeInstant(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return instant(us.Int64)
}

// maybeText returns s as it is stored, but NULL for "".
func maybeText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// aboveAll sorts after every identifier; identifiers are ASCII.
const aboveAll = "\x7f"

// below returns the exclusive upper bound for the identifiers of the page after the given one.
func below(after string) string {
	if after == "" {
		return aboveAll
	}
	return after
}

// rowLimit returns n, or 0 if it is negative, which PostgreSQL does not take for a limit.
func rowLimit(n int) int { return max(n, 0) }

// maybeBytes returns b as it is stored, but NULL if it is empty.
func maybeBytes(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

// maybeJSON returns v as JSON, or NULL if none is true.
func maybeJSON(v any, none bool) (any, error) { return stored.MaybeJSON(v, none) }

// fromJSON decodes a result of maybeJSON. NULL does not change the target.
func fromJSON(s sql.NullString, to any) error { return stored.FromJSON(s, to) }
