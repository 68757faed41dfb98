package ratelimit

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Instant is one reading of both clocks.
type Instant struct {
	Mono int64 // nanoseconds on the monotonic clock since the process's epoch
	Wall int64 // nanoseconds since 1970 on the wall clock; decides the day alone
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
// p with its level in proportion; if both admit the same it returns b itself. Whoever
// still decides by b gets Stale, so publish the bucket that comes back at once, and
// convert a bucket one time only.
func (b *Bucket) Convert(old, p *Params, now Instant) *Bucket { panic("x") }

// Buckets gives each key its own bucket of one limit (per: key), made at its
// first use and dropped by Sweep when it is full again. It is safe for concurrent use.
type Buckets struct{}

// NewBuckets returns an empty set whose buckets hold to p.
func NewBuckets(p *Params) *Buckets { panic("x") }

// Bucket returns the bucket of the key whose bucket identity is k, with the parameters
// that it holds to. It allocates only when it makes the bucket.
func (b *Buckets) Bucket(now Instant, k [16]byte) (*Params, *Bucket) { panic("x") }

// Configure makes b hold to p from now on, each bucket with its level in proportion.
func (b *Buckets) Configure(p *Params) { panic("x") }

// Sweep drops every bucket that is full. Call it now and then, about once a minute.
func (b *Buckets) Sweep(now Instant) { panic("x") }

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

// Daily is one daily cap in force. Its Ledger makes it.
type Daily struct{}

// Dailies gives each key its own count of one daily cap (per: key).
type Dailies struct{}

// Daily returns the count of the key whose bucket identity is k. It allocates only
// when it makes it.
func (d *Dailies) Daily(k [16]byte) *Daily { panic("x") }

// LedgerConfig configures a Ledger.
type LedgerConfig struct {
	Store DailyStore       // required
	Now   func() time.Time // the wall clock; default time.Now
	Log   *slog.Logger     // default: none
}

// Ledger owns every daily cap of the node and reserves ranges of them in the store ahead of use.
type Ledger struct{}

// NewLedger returns a ledger that is not started.
func NewLedger(cfg LedgerConfig) (*Ledger, error) { panic("x") }

// Start reads today's counts and reserves in the background until Stop. Limits may be
// registered before and after.
func (l *Ledger) Start(ctx context.Context) error { panic("x") }

// Stop gives back to the store what was reserved and not used. Decisions by daily caps are
// Exhausted from then on.
func (l *Ledger) Stop(ctx context.Context) error { panic("x") }

// Daily returns the daily cap that all callers of the limit limitID (a route) share,
// made at the first call. A later call sets the cap and keeps the day's count.
func (l *Ledger) Daily(limitID string, limit Rate) *Daily { panic("x") }

// Dailies returns the daily caps of the keys of the limit limitID, as Daily does.
func (l *Ledger) Dailies(limitID string, limit Rate) *Dailies { panic("x") }

// Drop forgets limitID, whose count stays in the store. Whoever still decides by it
// gets Stale: publish a configuration without it first.
func (l *Ledger) Drop(limitID string) { panic("x") }

// Wait returns once d, of which a decision was Exhausted, can tell, so that the
// caller may decide again. The error is that of the store or of ctx, or that the
// ledger has stopped: fault.Unavailable.
func (l *Ledger) Wait(ctx context.Context, d *Daily) error { panic("x") }

// Scope says what a limit applies to.
type Scope uint8

// The scopes, in the order in which limits are charged.
const (
	KeyScope Scope = iota
	RouteScope
	DailyScope
	GlobalScope
	AccountScope // of the management API
)

// String returns the scope as limit_scope tells it: key, route, daily, global, account.
func (s Scope) String() string { panic("x") }

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

// AppendPolicy appends the value of the field RateLimit-Policy, one item for each
// standing but those of the default limit: "key";q=100;w=60, "route";q=50;w=1.
// It appends nothing if there is none.
func AppendPolicy(dst []byte, standings []Standing) []byte { panic("x") }

// AppendLimits appends the value of the field RateLimit in the same way:
// "key";r=99;t=1, "route";r=49;t=1.
func AppendLimits(dst []byte, standings []Standing) []byte { panic("x") }

// Clock returns a source of instants whose epoch is the call.
func Clock() func() Instant { panic("x") }
