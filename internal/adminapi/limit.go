package adminapi

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The rate limit of each account-level key (contract, section 3).
const (
	callsSustained = "100/s"
	callsBurst     = "200/s"
)

// sweepInterval is the time between removals of full buckets, in nanoseconds.
const sweepInterval = int64(time.Minute)

// sweepSoon is the time until the next removal if there is no room for a bucket.
const sweepSoon = int64(time.Second)

// callLimits holds the token bucket of each account-level key, or of each of other callers.
type callLimits struct {
	clock   func() ratelimit.Instant
	limiter *ratelimit.Limiter
	buckets *ratelimit.Buckets
	swept   atomic.Int64 // time of the last sweep, in nanoseconds of the monotonic clock
}

func newCallLimits(clock func() ratelimit.Instant) *callLimits {
	return newLimits(clock, callsSustained, callsBurst, nil)
}

// newLimits returns limits of the given rates, which must be valid; burst may be "". Their buckets count
// towards budget, which may be nil.
func newLimits(clock func() ratelimit.Instant, sustained, burst string, budget *ratelimit.AccountBudget) *callLimits {
	c, err := ratelimit.ParseConfig(sustained, burst, "", "")
	if err != nil {
		panic(err) // the rates are constants
	}
	params := ratelimit.Compile(c)
	limiter := ratelimit.NewLimiter(func() int64 { return clock().Mono })
	return &callLimits{clock: clock, limiter: limiter, buckets: ratelimit.NewBuckets(&params, budget)}
}

// decide charges the key for one call, if take is set, and returns the status of its limit afterwards,
// which the response shows too. A key for whose bucket there is no room is refused.
func (l *callLimits) decide(c *ratelimit.Charge, key [16]byte, take bool) (s ratelimit.Status, refused bool) {
	now := l.clock()
	if last := l.swept.Load(); now.Mono-last >= sweepInterval && l.swept.CompareAndSwap(last, now.Mono) {
		l.buckets.Sweep(now, nil)
	}
	for {
		params, bucket := l.buckets.Bucket(key)
		if bucket == nil {
			l.swept.Store(min(l.swept.Load(), now.Mono-sweepInterval+sweepSoon))
			return ratelimit.Status{Scope: ratelimit.AccountScope, RetryAfter: 1}, true
		}
		c.Clear()
		c.Add(ratelimit.Limit{Scope: ratelimit.AccountScope, Params: params, Bucket: bucket}, 1)
		if !take {
			l.limiter.Peek(now, c)
			return *c.Worst(), false
		}
		if result := l.limiter.Decide(now, c); result != ratelimit.Stale {
			return *c.Worst(), result == ratelimit.Refused
		}
	}
}

// charge performs the 404 (path), 405 and 429 checks. A request that matches no
// operation is not charged. Every response from here on has the rate limit
// headers.
func (c *call) charge() error {
	var charge ratelimit.Charge
	status, refused := c.api.limits.decide(&charge, bucketKey(&c.principal), c.op != nil)
	c.setLimitHeaders(&charge)
	if c.op == nil {
		return c.noSuchCall()
	}
	if !refused {
		return nil
	}
	c.header.Set("Retry-After", strconv.FormatInt(status.RetryAfter, 10))
	return &fault.Error{
		Code:    fault.RateLimitExceeded,
		Message: "too many requests with this key: the limit is " + callsSustained + " with bursts of 200; retry after the seconds in the Retry-After header",
		Limit:   &fault.Limit{Limit: status.Limit, Remaining: status.Remaining, ResetAt: status.ResetAt, Scope: status.Scope.String()},
	}
}

func (c *call) setLimitHeaders(charge *ratelimit.Charge) {
	s := charge.Worst()
	for name, value := range map[string]string{
		"X-RateLimit-Limit":     strconv.FormatInt(s.Limit, 10),
		"X-RateLimit-Remaining": strconv.FormatInt(s.Remaining, 10),
		"X-RateLimit-Reset":     strconv.FormatInt(s.ResetAt, 10),
		"RateLimit-Policy":      string(charge.AppendPolicy(nil)),
		"RateLimit":             string(charge.AppendLimits(nil)),
	} {
		// Header.Set would change the names that the specification gives, for example to
		// X-Ratelimit-Limit.
		c.header[name] = []string{value}
	}
}
