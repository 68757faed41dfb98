package ratelimit

import "github.com/keygate/keygate/internal/fault"

// MaxConcurrency is the largest number of requests in flight that a limit can allow (plans.md, section 6).
const MaxConcurrency = 1_000_000

// Concurrency is how many requests of a route may be in flight at once (plans.md, section 6). The zero value means no limit.
type Concurrency struct {
	Max int64  `json:"max"`           // 1 to MaxConcurrency
	Per string `json:"per,omitempty"` // PerKey for as many of each key, or "" for all callers together
}

// IsZero reports whether c limits nothing.
func (c Concurrency) IsZero() bool { return c == Concurrency{} }

// Validate checks c, which must not be the zero value. Errors name the fields max and per.
func (c Concurrency) Validate() error {
	var per error
	if c.Per != "" && c.Per != PerKey {
		per = fault.Invalid("per", `must be "key"; omit it for one limit that all callers share`)
	}
	return fault.Join(fault.Prefixed("max", CheckConcurrency(c.Max)), per)
}

// CheckConcurrency checks the number of requests in flight that a limit allows. The error names no field.
func CheckConcurrency(n int64) error {
	if n < 1 || n > MaxConcurrency {
		return fault.Invalid("", "must be a whole number from 1 to %d", MaxConcurrency)
	}
	return nil
}
