package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

// micros returns a time as it is stored.
func micros(t time.Time) int64 { return t.UnixMicro() }

// instant returns a stored time.
func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

// maybeMicros stores the zero time as NULL.
func maybeMicros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func maybeInstant(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return instant(us.Int64)
}

// maybeText stores "" as NULL.
func maybeText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// maybeJSON stores v as JSON, or as NULL if there is none.
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

// fromJSON reads what maybeJSON stored; NULL leaves to alone.
func fromJSON(s sql.NullString, to any) error {
	if !s.Valid {
		return nil
	}
	if err := json.Unmarshal([]byte(s.String), to); err != nil {
		return fmt.Errorf("decode %T: %w", to, err)
	}
	return nil
}

// limit reads a stored rate limit configuration.
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
