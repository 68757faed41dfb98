// Package send is the upstream half of an exchange, for the engines of both versions of HTTP:
//
//	pick ─► acquire ─► confirm ─► send ─► receive ─► classify ─┬─► the end
//	 ▲                                                         │
//	 └──────────────────── once more ◄─────────────────────────┘
//
// An [Attempt] sends an admitted request to a [Target] of its gateway, over HTTP/1.1 ([H1Try]) or HTTP/2
// ([H2Try]), and passes the response to the [Client], the half of the exchange that an engine
// implements. The second look is made directly before the first byte of each try goes out.
// What a client's connection keeps from one request to the next is its [Affinity].
package send
