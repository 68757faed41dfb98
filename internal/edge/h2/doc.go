// Package h2 is the driver of the data plane on net/http: HTTP/1.1 and HTTP/2
// in clear with prior knowledge (contract, 4).
//
//	request ─► size of head ─► admit.Decide ─► refuse, with a JSON body
//	                                        ├► preflight
//	                                        └► upstream.Pool.Send ─► copy, or tunnel
//
// It decides nothing itself: who gets in is said by package admit, who may be
// connected to by package netguard. What it adds is the hygiene of fields in
// both directions (fields.go, trailers.go) and the manners of refusing a
// request whose body is still coming (refuse.go).
//
// net/http answers a message that it cannot parse itself, in plain text, before
// this package sees it.
package h2
