package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
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

// limit decodes a stored rate limit.
func limit(sustained, burst, daily, per string) (ratelimit.Config, error) {
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
