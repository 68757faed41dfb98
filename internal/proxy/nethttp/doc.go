// Package nethttp is the driver of the data plane on net/http: HTTP/2 over TLS and in
// clear with prior knowledge (contract, 4). Requests of HTTP/1.1 come from the
// engine, decided already, if their upstream speaks TLS or HTTP/2.
//
//	HTTP/2 ─► size of head ─► admit.Decide ─► refuse, with a JSON body
//	                                       ├► preflight
//	HTTP/1.1 ─► ServeDecided ──────────────┴► upstream.Pool.Send ─► copy, or tunnel
//
// It decides nothing itself: who gets in is said by package admit, who may be
// connected to by package netguard. What it adds is the hygiene of fields in
// both directions (fields.go, trailers.go) and the manners of refusing a
// request whose body is still coming (refuse.go).
//
// net/http resets a stream whose request it cannot parse before this package sees
// it.
package nethttp
