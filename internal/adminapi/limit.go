package adminapi

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Each account-level key may make this many calls (contract, section 3).
const (
	callsSustained = "100/s"
	callsBurst     = "200/s"
)

// sweepInterval is how often buckets that are full again are dropped, in
// nanoseconds.
const sweepInterval = int64(time.Minute)

// callLimits holds the limit of each account-level key.
type callLimits struct {
	buckets *ratelimit.Buckets
	swept   atomic.Int64 // when, on the monotonic clock
}

func newCallLimits() *callLimits {
	c, err := ratelimit.ParseConfig(callsSustained, callsBurst, "", "")
	if err != nil {
		panic(err) // the constants above are rates
	}
	params := ratelimit.Compile(c)
	return &callLimits{buckets: ratelimit.NewBuckets(&params)}
}

// decide charges the key one call, or none if charge is false, and tells where
// its limit then stands.
func (l *callLimits) decide(now ratelimit.Instant, key [16]byte, charge bool) (s ratelimit.Status, refused bool) {
	if last := l.swept.Load(); now.Mono-last >= sweepInterval && l.swept.CompareAndSwap(last, now.Mono) {
		l.buckets.Sweep(now)
	}
	var standing [1]ratelimit.Status
	for {
		params, bucket := l.buckets.Bucket(now, key)
		limits := [1]ratelimit.Limit{{Scope: ratelimit.AccountScope, Params: params, Bucket: bucket}}
		if !charge {
			ratelimit.Peek(now, limits[:], standing[:])
			return standing[0], false
		}
		if result, _ := ratelimit.Decide(now, limits[:], standing[:]); result != ratelimit.Stale {
			return standing[0], result == ratelimit.Refused
		}
	}
}

// charge is the checks 404 (of the path), 405 and 429. What is no call of the
// API charges nothing. Every answer from here on tells where the limit stands.
func (c *call) charge() error {
	standing, refused := c.api.limits.decide(c.api.cfg.Clock(), bucketKey(c.principal.KeyID), c.op != nil)
	c.setLimitHeaders(standing)
	if c.op == nil {
		return c.noSuchCall()
	}
	if !refused {
		return nil
	}
	c.header.Set("Retry-After", strconv.FormatInt(standing.RetryAfter, 10))
	return &fault.Error{
		Code:    fault.RateLimitExceeded,
		Message: "too many calls with this key: it may make " + callsSustained + " with bursts of 200; wait for the time in Retry-After",
		Limit:   &fault.Limit{Limit: standing.Limit, Remaining: standing.Remaining, ResetAt: standing.ResetAt, Scope: standing.Scope.String()},
	}
}

func (c *call) setLimitHeaders(s ratelimit.Status) {
	all := []ratelimit.Status{s}
	for name, value := range map[string]string{
		"X-RateLimit-Limit":     strconv.FormatInt(s.Limit, 10),
		"X-RateLimit-Remaining": strconv.FormatInt(s.Remaining, 10),
		"X-RateLimit-Reset":     strconv.FormatInt(s.ResetAt, 10),
		"RateLimit-Policy":      string(ratelimit.AppendPolicy(nil, all)),
		"RateLimit":             string(ratelimit.AppendLimits(nil, all)),
	} {
		// The names are written as the specification writes them; Set would
		// make X-Ratelimit-Limit of the first.
		c.header[name] = []string{value}
	}
}
