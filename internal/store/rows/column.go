package rows

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

// Micros returns a time as it is stored: in microseconds since 1970.
func Micros(t time.Time) int64 { return t.UnixMicro() }

// Instant returns the time of a stored number of microseconds.
func Instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

// MaybeMicros is Micros, but NULL for the zero time.
func MaybeMicros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// MaybeInstant is Instant, but the zero time for NULL.
func MaybeInstant(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return Instant(us.Int64)
}

// maybeText returns s as it is stored, but NULL for "".
func maybeText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// maybeCount returns n as it is stored, but NULL for 0.
func maybeCount(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

// maybeBytes returns b as it is stored, but NULL if it is empty.
func maybeBytes(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

// aboveAll sorts after every identifier; identifiers are ASCII.
const aboveAll = "\x7f"

// Below returns the exclusive upper bound for the identifiers of the page after the given one.
func Below(after string) string {
	if after == "" {
		return aboveAll
	}
	return after
}

// Limit returns n, or 0 if n is negative: to SQLite a negative limit means no limit, and PostgreSQL rejects it.
func Limit(n int) int { return max(n, 0) }

// borrowed is a byte string that is valid until the next row, and is not copied if the engine has it in memory.
type borrowed []byte

// Scan implements sql.Scanner.
func (b *borrowed) Scan(v any) error {
	switch v := v.(type) {
	case []byte:
		*b = v
	case string:
		*b = []byte(v)
	default:
		*b = nil
	}
	return nil
}

// text is a text with any bytes, which PostgreSQL keeps as a byte string.
type text string

// Scan implements sql.Scanner.
func (t *text) Scan(v any) error {
	switch v := v.(type) {
	case []byte:
		*t = text(v)
	case string:
		*t = text(v)
	default:
		*t = ""
	}
	return nil
}

// maybeJSON returns v as JSON, or NULL if none is true.
func maybeJSON(v any, none bool) (any, error) {
	if none {
		return nil, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return string(b), nil
}

// fromJSON decodes a result of maybeJSON. NULL does not change the target.
func fromJSON(s sql.NullString, to any) error {
	if !s.Valid {
		return nil
	}
	if err := json.Unmarshal([]byte(s.String), to); err != nil {
		return fmt.Errorf("decode %T: %w", to, err)
	}
	return nil
}

// rateLimit decodes a stored rate limit.
func rateLimit(sustained, burst, daily, per string) (ratelimit.Config, error) {
	c := ratelimit.Config{Per: per}
	for _, m := range [...]struct {
		text string
		to   *ratelimit.Rate
	}{{sustained, &c.Sustained}, {burst, &c.Burst}, {daily, &c.Daily}} {
		if err := m.to.UnmarshalText([]byte(m.text)); err != nil {
			return ratelimit.Config{}, fmt.Errorf("stored rate %q: %w", m.text, err)
		}
	}
	return c, nil
}
