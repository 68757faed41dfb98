// Package accesslog carries what the data plane has to tell about each request
// from the request path to the sinks: traffic, audit, events, metrics, the request
// log (architecture, Outcome).
//
//	connection ── Put ─► Shard ─► chunk, when full ─┐
//	connection ── Put ─► Shard ─► chunk, when full ─┼─► Collector ── Take ─► each Sink
//	                       └── every 20 ms ────────┘     (empty chunks go back)
//
// Nobody waits for a sink but the Collector. What has no room is counted as lost.
package accesslog

// Result is what ended a request, in the order of the checks (contract, 4.2).
type Result uint8

// The decisions.
const (
	Forwarded    Result = iota // the upstream answered
	Unreachable                // 502 of ours
	TimedOut                   // 504 of ours
	Preflight                  // a CORS preflight, answered by the gateway
	Malformed                  // 400, 413, 414, 431, 505, or a method that is never allowed
	NoGateway                  // 404 gateway_not_found: nobody's record
	KeyInvalid                 // 401
	KeyExpired                 // 401
	WrongGateway               // 403: the key is for another gateway
	NoRoute                    // 404
	NoMethod                   // 405
	WrongScope                 // 403
	Limited                    // 429: Limit, Remaining and ResetAt tell of the limit that refused
	Failed                     // 500 or 503 of ours
	Abandoned                  // the client left before an answer began; Status is 499
)

// Method is a request method. Those of OtherMethod have their text in the entry.
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

// Part tells how much of a request a record tells of.
type Part uint8

// The parts. A request that ends soon gives one record, Whole. One that was let
// through and lasts (a slow upstream, a stream, a tunnel) gives a Started within
// 800 ms, for who must know at once that it was authenticated, and an Ended.
const (
	Whole Part = iota
	// Started has no status, bytes or duration yet. Nothing that counts requests
	// may count it: the Ended of the same Request follows.
	Started
	// Ended is as Whole is, but for an authentication event that the Started has
	// told already.
	Ended
)

// Record is what ends a request on the data plane, but for Started. It has a fixed
// size and no pointers. An identifier of zeros stands for an absent one.
type Record struct {
	Start    int64 // microseconds since 1970: when the head had come
	Duration int64 // nanoseconds from Start until the last byte of the answer was ready for the client
	Upstream int64 // nanoseconds from sending to the head of the upstream's answer; -1 if none came

	// BytesIn and BytesOut are of bodies, without framing: what was taken from
	// the client to be forwarded, and what was given to it. After an upgrade, all
	// bytes count. The body of a request that was refused does not.
	BytesIn, BytesOut int64

	Request                      [16]byte
	Account, Gateway, Route, Key [16]byte
	Client                       [16]byte // the caller's address (netip.Addr.As16), behind trusted proxies the one that they tell

	// Trace is the trace (W3C) that the request is part of, zeros if nobody asked
	// for traces or it was not chosen; Parent is the caller's span, zeros if the
	// trace begins here.
	Trace  [16]byte
	Parent [8]byte

	// Limit, Remaining and ResetAt (Unix second at which the request would pass)
	// are the refusing limit's of Limited.
	Limit, Remaining, ResetAt int64

	Status         uint16 // that the client got
	UpstreamStatus uint16 // that the upstream gave; 0 if none
	Result         Result
	LimitScope     uint8 // a ratelimit.Scope, of Limited
	Method         Method
	Part           Part
	Authenticated  bool     // checks 3 and 4 were made: the request is an authentication event
	Prefix         [10]byte // key_prefix of a string with a key's form and checksum, filled up with zeros
}

// Entry is a record with the texts that belong to it.
type Entry struct {
	Record
	MethodText string // of OtherMethod
	Path       string // without the query, byte for byte; at most 16 KiB
}

// Sink takes the records. Take is called by one goroutine at a time with each
// record exactly once, in no certain order. The batch and its texts are the
// caller's again when Take returns. Take does no I/O: a sink that writes has its
// own goroutine and its own, bounded, memory, and counts what it must lose.
type Sink interface {
	Take(batch []Entry)
}
