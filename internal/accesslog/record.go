// Package accesslog carries the access record of each request from the request path to
// the sinks: traffic, audit, events, metrics and the request log (architecture, Access
// record).
//
//	connection ── Emit ─► Shard ─► chunk, when full ─┐
//	connection ── Emit ─► Shard ─► chunk, when full ─┼─► Collector ── Take ─► each Sink
//	                        └── every 20 ms ────────┘     (empty chunks are reused)
//
// The request path never waits for a sink: only the Collector's goroutine does. A record
// for which there is no room is dropped and counted as lost.
package accesslog

// Result is what ended a request. Sinks store its number, so a new result is added at the end.
type Result uint8

// The results.
const (
	Forwarded      Result = iota // the upstream's response was forwarded
	Unreachable                  // 502 by the gateway
	TimedOut                     // 504 by the gateway
	Preflight                    // the gateway's response to a CORS preflight
	Malformed                    // 400, 413, 414, 431 or 505, or the 405 for a method that is never allowed
	NoGateway                    // 404 gateway_not_found: the record belongs to no account
	KeyInvalid                   // 401
	KeyExpired                   // 401
	WrongGateway                 // 403: the key is for another gateway
	NoRoute                      // 404
	NoMethod                     // 405
	WrongScope                   // 403
	Limited                      // 429: Limit, Remaining and ResetAt describe the limit that refused
	Failed                       // 500 or 503 by the gateway
	Abandoned                    // the client closed its connection before a response began; Status is 499
	OwnerSuspended               // 403: the owner of the key is suspended
	SelfServed                   // the gateway's response to the holder of a key
	Responded                    // the response of the route itself
	Redirected                   // the redirect of the route itself
	AddressDenied                // 403: the lists of addresses do not allow the client's; Reason says whose
	Maintenance                  // 503: the gateway is under maintenance
	Results                      // the number of results
)

// Method is a request method. For OtherMethod, the Entry has its text.
type Method uint8

// The methods.
const (
	OtherMethod Method = iota
	GET
	HEAD
	POST
	PUT
	PATCH
	DELETE
	OPTIONS
	CONNECT
	TRACE
)

// Part says which part of a request a record covers.
type Part uint8

// The parts. A short request has one record, Whole. An admitted request that takes longer (a slow
// upstream, a stream, a tunnel) has two records: Started, within 800 ms, for sinks that must report
// its authentication at once, and Ended.
const (
	Whole Part = iota
	// Started has no status, bytes or duration yet. A sink that counts requests must
	// ignore it: the Ended of the same Request follows.
	Started
	// Ended is like Whole, except that Started has already reported its authentication.
	Ended
)

// Record is the access record of one request on the data plane. It has a fixed size and no
// pointers. An identifier of zeros means absent.
type Record struct {
	Start    int64 // microseconds since 1970: when the head of the request was complete
	Duration int64 // nanoseconds from Start until the last byte of the response was ready to be sent
	Upstream int64 // nanoseconds from sending the request to the head of the upstream's response; -1 without a response

	// BytesIn and BytesOut count the bodies without framing: the bytes that the client sent and
	// that were to be forwarded, and the bytes that it was sent. After an upgrade all bytes count.
	// The body of a refused request does not count.
	BytesIn, BytesOut int64

	Request                      [16]byte
	Account, Gateway, Route, Key [16]byte
	OwnerID                      [16]byte // of the key
	Client                       [16]byte // the client's address (netip.Addr.As16), as reported by trusted proxies

	// Trace is the W3C trace that the request belongs to, or zeros if tracing is off or the
	// trace is not sampled. Parent is the client's span, or zeros if the trace starts here.
	Trace  [16]byte
	Parent [8]byte

	// For the result Limited, Limit, Remaining and ResetAt describe the limit that refused. ResetAt
	// is the Unix time in seconds at which the request would be admitted.
	Limit, Remaining, ResetAt int64

	// PeriodStart and PeriodEnd are the period of usage records in which the request is counted, in Unix seconds; 0 if it
	// was not charged, because it was refused or nothing of it has reached the upstream. See SetPeriod.
	PeriodStart, PeriodEnd uint32

	// Canary is the canary that counts the request, in the step with a number, by its caller; zeros if none does. CanaryNext is set
	// if the request went to the canary's upstream.
	Canary       [16]byte
	CanaryCaller uint64
	CanaryStep   uint32
	CanaryNext   bool

	Status         uint16 // sent to the client
	UpstreamStatus uint16 // received from the upstream; 0 if none
	Result         Result
	Reason         Reason // of a failure to reach the upstream
	LimitScope     uint8  // a ratelimit.Scope, for Limited
	Method         Method
	Part           Part
	Attempts       uint8    // how often the request was sent to an upstream
	Major, Minor   uint8    // the client's version of HTTP, as in 1 and 1, or 2 and 0; zeros if unknown
	Split          bool     // a split decided to which upstream the request was sent: that is its side (targets.md, section 7)
	Authenticated  bool     // checks 3 and 4 (contract, 4.2) were made: the request is an authentication event
	Prefix         [10]byte // key_prefix of a string with the format and checksum of a key, padded with zeros
}

// SetPeriod sets the period of usage records of a request that was charged: the hour, in UTC, in which it began, cut where
// a window of one of its quotas begins (plans.md, section 8). from and until are the edges of these windows, in Unix
// nanoseconds, between which the request was counted, whatever the clock of this process says: 0 and math.MaxInt64 without
// quotas.
func (r *Record) SetPeriod(from, until int64) {
	const second, hour = 1e9, 3600e9
	at := min(max(r.Start*1000, from, 0), until-1)
	begins := at - at%hour
	r.PeriodStart, r.PeriodEnd = uint32(max(begins, from)/second), uint32(min(begins+hour, until)/second)
}

// Entry is a record with its texts.
type Entry struct {
	Record
	MethodText   string // for OtherMethod
	Path         string // without the query, byte for byte; at most 16 KiB
	Owner        string // external ID of the key's owner; "" if it has none
	Plan         string // name of the plan of the key, of its owner, or of the gateway: the first there is; or ""
	UpstreamName string // name of the gateway's upstream to which the request was sent, or was to be by a split; "" if it was not
	SideReason   string // why a split decided for that upstream, in words; "" without a split
	Target       string // host and port of the target to which it was sent last, as in the target's URL; "" if it was not
	// Detail is the text of the error behind Reason, at most 256 bytes. It may contain
	// addresses, which only the operator may see, but no secrets. For the results NoGateway, NoRoute and NoMethod
	// without a Reason, it is the host that the client addressed, in lower case and without a port. For the result
	// Limited, it is the name of the plan's limit, <plan>.<limit>, or "".
	Detail string
	// Token says with whose token the request was made, or was said to be if the token was refused; nil without a token.
	Token *Token
	Cost  string // what the request was charged by the rules of its route; see Costs
	// AttemptList has the attempts of a request to an upstream with several targets, and the targets that were not tried. It is ""
	// unless there were several attempts, the only one failed, or there was none because every target drains. See the functions
	// Attempts and UntriedOf.
	AttemptList string
}

// Token says with whose token a request was made. It is immutable.
type Token struct {
	IssuerID string
	Subject  string // in the form of issuer.Recorded; "" for a token that was refused
}

// Side returns the name of the upstream that a split decided for; "" without a split.
func (e *Entry) Side() string {
	if e.SideReason == "" {
		return ""
	}
	return e.UpstreamName
}

// Sink consumes the records. One goroutine at a time calls Take, with each record exactly
// once, in no particular order. Take must not keep the batch or its texts after it
// returns. Take must not do I/O: a sink that writes has its own goroutine and its own
// bounded memory, and counts what it must drop.
type Sink interface {
	Take(batch []Entry)
}
