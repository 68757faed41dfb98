package stored

import (
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/keygate/keygate/internal/ratelimit"
)

// MaybeJSON returns v as JSON, or NULL if it has no true member.
func MaybeJSON(v any, none bool) (any, error) {
	if none {
		return nil, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return string(b), nil
}

// FromJSON decodes a result of MaybeJSON. NULL does not change the target.
func FromJSON(s sql.NullString, to any) error {
	if !s.Valid {
		return nil
	}
	if err := json.Unmarshal([]byte(s.String), to); err != nil {
		return fmt.Errorf("decode %T: %w", to, err)
	}
	return nil
}

// Limit decodes a stored rate limit.
func Limit(sustained, burst, daily, per string) (ratelimit.Config, error) {
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
