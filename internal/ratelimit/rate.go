package ratelimit

import (
	"strings"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// MaxCount is the largest count of a rate.
const MaxCount = 1_000_000_000

// Rate is a number of requests per unit of time, written "<count>/<unit>" (contract, 4.3).
// The zero value means no rate.
type Rate struct {
	Count int64         // 1 to MaxCount
	Per   time.Duration // a second, a minute, an hour or a day
	text  string        // as the user wrote it
}

// ParseRate parses "<count>/<unit>": a positive integer up to 10⁹ without leading zeros,
// and one of the units s, sec, second, min, minute, h, hour, day. The error is a validation
// error without a field.
func ParseRate(s string) (Rate, error) { return parseRate(s, MaxCount) }

// parseRate parses a rate with a count of at most most.
func parseRate(s string, most int64) (Rate, error) {
	count, unit, found := strings.Cut(s, "/")
	per := unitLength(unit)
	if !found || per == 0 || len(count) == 0 || len(count) > 16 || count[0] == '0' {
		return Rate{}, badRate(s, most)
	}
	var n int64
	for i := range len(count) {
		if count[i] < '0' || count[i] > '9' {
			return Rate{}, badRate(s, most)
		}
		n = n*10 + int64(count[i]-'0')
	}
	if n > most {
		return Rate{}, badRate(s, most)
	}
	return Rate{Count: n, Per: per, text: s}, nil
}

func badRate(s string, most int64) error {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return fault.Invalid("", "%q is not a valid rate: write <count>/<unit>, with a count from 1 to %d and one of the units s, sec, second, min, minute, h, hour, day", s, most)
}

func unitLength(unit string) time.Duration {
	switch unit {
	case "s", "sec", "second":
		return time.Second
	case "min", "minute":
		return time.Minute
	case "h", "hour":
		return time.Hour
	case "day":
		return 24 * time.Hour
	default:
		return 0
	}
}

// String returns the rate as the user wrote it.
func (r Rate) String() string { return r.text }

// IsZero reports whether r is the zero value, no rate.
func (r Rate) IsZero() bool { return r.Count == 0 }

// Equal reports whether r and o are the same rate, however they are written.
func (r Rate) Equal(o Rate) bool { return r.Count == o.Count && r.Per == o.Per }

// MarshalText returns the rate as the user wrote it.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.text), nil }

// UnmarshalText parses what MarshalText returned. Empty text means no rate.
func (r *Rate) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*r = Rate{}
		return nil
	}
	parsed, err := ParseRate(string(text))
	*r = parsed
	return err
}

// UnitRate is a Rate of units of a meter, with a count of at most MaxUnits.
type UnitRate struct{ Rate }

// UnmarshalText parses what MarshalText returned. Empty text means no rate.
func (r *UnitRate) UnmarshalText(text []byte) (err error) {
	r.Rate = Rate{}
	if len(text) > 0 {
		r.Rate, err = parseRate(string(text), MaxUnits)
	}
	return err
}

// The values of Config.Per that give each key, or each client address, its own bucket.
const (
	PerKey     = "key"
	PerAddress = "address"
)

// Config is the rate limit configuration of a route (specification, Rate limit
// configuration) or, with only Sustained and Burst, of a gateway. The zero value means no
// limit. A zero Rate is an absent property.
type Config struct {
	Sustained Rate   // refill rate of the bucket
	Burst     Rate   // its count is the bucket's capacity; without Sustained, it is the refill rate too
	Daily     Rate   // cap per UTC day
	Per       string // PerKey or PerAddress for a bucket for each key or address, or "" for one bucket for all callers
}

// IsZero reports whether c limits nothing.
func (c Config) IsZero() bool { return c == Config{} }

// HasBucket reports whether c has a token bucket, with or without a daily cap.
func (c Config) HasBucket() bool { return !c.Sustained.IsZero() || !c.Burst.IsZero() }

// Validate checks what ParseRate cannot: the unit of daily must be day, per must be "key" or "address",
// and the configuration must have at least one limit. Errors name the field relative to the
// configuration.
func (c Config) Validate() error {
	var none error
	if !c.HasBucket() && c.Daily.IsZero() {
		none = fault.Invalid("", "must have at least one of sustained, burst and daily")
	}
	return fault.Join(none, c.checkMembers())
}

func (c Config) checkMembers() error {
	var daily, per error
	if !c.Daily.IsZero() && c.Daily.Per != 24*time.Hour {
		daily = fault.Invalid("daily", "must be written <count>/day")
	}
	if c.Per == PerAddress && !c.Daily.IsZero() {
		daily = fault.Join(daily, fault.Invalid("daily", "cannot be combined with per: address, because the counts of a day are stored, and there may be any number of addresses: leave it out, or give sustained a rate such as 100/day"))
	}
	per = CheckPer(c.Per)
	return fault.Join(daily, per)
}

// CheckPer checks a value of Config.Per. The error names the field per.
func CheckPer(per string) error {
	if per == "" || per == PerKey || per == PerAddress {
		return nil
	}
	return fault.Invalid("per", `must be "key" or "address"; omit it for one limit that all callers share`)
}

// ParseConfig parses the properties of a configuration as users write them. An empty string
// is an absent property. Errors name the property as their field.
func ParseConfig(sustained, burst, daily, per string) (Config, error) {
	c := Config{Per: per}
	var invalid error
	for _, m := range []struct {
		name, text string
		to         *Rate
	}{{"sustained", sustained, &c.Sustained}, {"burst", burst, &c.Burst}, {"daily", daily, &c.Daily}} {
		invalid = fault.Join(invalid, fault.Prefixed(m.name, m.to.UnmarshalText([]byte(m.text))))
	}
	if invalid != nil {
		return Config{}, fault.Join(invalid, c.checkMembers())
	}
	return c, c.Validate()
}
