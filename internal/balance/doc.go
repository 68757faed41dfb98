// Package balance chooses the target of each attempt of a request (targets.md, sections 2, 3, 4, 6 and 7).
//
// It is pure: it does no I/O, has no clock and starts no goroutine. Every method is passed the time, as the duration since
// an arbitrary start by a monotonic clock. What happens outside is reported to it: how attempts end, and what checks find.
//
//	Fleet ─┬─► Upstream ──► Target: weight, backup, drain, counts         one for each upstream that names the address
//	       │                  │ of        Config, and the retry budget
//	       ├─► Address ◄──────┤           in flight, ejection, failures, warm-up     shared by an account's upstreams
//	       └─► Health ◄───────┘           what the checks of one kind find at an address
//
//	Attempts   one request: Begin, then for each attempt Pick, Answer and End, with Retry between them, and Finish
//
// A Fleet lives outside of the snapshot and is carried over from one to the next, as rate limit buckets are. A change of an
// upstream's Config keeps what is known of every address that stays, and the counts of every target that stays.
//
// Pick reads an immutable view of who takes part. Whatever changes that marks the views of the upstreams concerned as stale,
// and the next Pick makes a new one while others go on with the old one. Pick checks the target that it has chosen once
// more, so no pick that begins after an ejection or a drain returns its target. A pick waits for a lock only if its target has
// begun to drain meanwhile.
package balance
