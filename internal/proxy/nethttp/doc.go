// Package nethttp is the driver of the data plane on net/http (contract, 4): it serves
// HTTP/2, over TLS and in clear with prior knowledge. Requests over HTTP/1.1 come from
// proxy/h1, decided already, if their upstream speaks TLS or HTTP/2.
//
//	HTTP/2 ─► limits of the head ─► admit.Decide ─┬─► refuse, with a JSON body
//	                                              ├─► preflight
//	HTTP/1.1 ─► ServeDecided ─────────────────────┴─► upstream.Pool.Send ─► copy, or tunnel
//
// The rules of proxying are those of package proxy. What stands here is how net/http is
// made to follow them, above all how a request is refused whose body is still coming
// (refuse.go).
//
// net/http resets a stream whose request it cannot parse before this package sees it.
package nethttp
