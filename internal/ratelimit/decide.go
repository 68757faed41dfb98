package ratelimit

import (
	"context"
	"sync/atomic"
	"time"
)

// Instant is one reading of both clocks.
type Instant struct {
	Mono int64 // nanoseconds on the monotonic clock since the process's epoch
	Wall int64 // nanoseconds since 1970 on the wall clock
}

// Params is a compiled token bucket. Values are comparable.
type Params struct {
	capacity int64
}

// Compile returns the token bucket of a configuration that has one (Config.HasBucket).
func Compile(c Config) Params { panic("x") }

// CompileRate returns the token bucket of a key's rate: a sustained.
func CompileRate(r Rate) Params { panic("x") }

// Bucket is the state of one token bucket; the zero value is full.
type Bucket struct {
	state atomic.Int64
}

// Convert closes b, which holds to old, and returns a bucket that holds to
// p with its level in proportion. Whoever still decides by b gets Stale.
func (b *Bucket) Convert(old, p *Params, now Instant) *Bucket { panic("x") }

// Buckets gives each key its own bucket of one limit (per: key), made at its
// first use and dropped by Sweep when it is full again.
type Buckets struct{}

// Bucket returns the bucket of the key whose bucket identity is k.
func (b *Buckets) Bucket(k [16]byte) *Bucket { panic("x") }

// DailyCount is how much of a daily cap is given out: Used requests of the UTC
// day Day (days since 1970) count against the limit that LimitID and KeyID name.
type DailyCount struct {
	LimitID string // the route
	KeyID   string // the bucket identity of the key for a limit with per: key, else ""
	Day     int64
	Used    int64
}

// DailyStore keeps daily counts.
type DailyStore interface {
	LoadDailyCounts(ctx context.Context, day int64) ([]DailyCount, error)
	SaveDailyCounts(ctx context.Context, counts []DailyCount) error
}

// Daily is one daily cap in force.
type Daily struct{}

// Ledger owns every daily cap of the node and reserves ranges of them in the store ahead of use.
type Ledger struct{}

// LedgerConfig ...
type LedgerConfig struct {
	Store DailyStore
	Now   func() time.Time
}

// Scope says what a limit applies to.
type Scope uint8

// The scopes, in the order in which limits are charged.
const (
	KeyScope Scope = iota
	RouteScope
	DailyScope
	GlobalScope
)

// Applied is one limit that applies to a request: a bucket with its
// parameters, or a daily cap.
type Applied struct {
	Scope   Scope
	Default bool // the global limit that a gateway did not set itself
	Params  *Params
	Bucket  *Bucket
	Daily   *Daily
}

// Standing is where a limit stands after a decision.
type Standing struct {
	Scope      Scope
	Default    bool
	Limit      int64 // capacity
	Remaining  int64 // whole requests left
	Window     int64 // whole seconds, rounded up, that a refill from empty takes
	ResetAt    int64 // Unix second, rounded up, at which it is full again; of a refusal: at which the request would pass
	ResetIn    int64 // whole seconds until ResetAt
	RetryAfter int64 // of a refusing limit: whole seconds until the request would pass, at least 1
	Refused    bool
}

// Result is how a decision ended.
type Result uint8

// The results.
const (
	Admitted  Result = iota // every limit was charged
	Refused                 // no limit was charged
	Stale                   // a bucket was closed by a change: look it up again
	Exhausted               // a daily cap must reserve before it can tell: wait for it, then ask again
)

// Decide charges one request to all of limits or to none, and fills standing,
// which has room for as many. Of a refusal, worst is the index of the refusing limit
// that makes the caller wait longest; of Exhausted, of the daily cap to wait for; of
// Admitted, of the limit with the fewest requests left (tie: the later reset).
// It does not allocate.
func Decide(now Instant, limits []Applied, standing []Standing) (r Result, worst int) { panic("x") }

// Look fills standing as Decide does, and charges nothing; worst is the limit with the fewest left.
func Look(now Instant, limits []Applied, standing []Standing) (worst int) { panic("x") }
