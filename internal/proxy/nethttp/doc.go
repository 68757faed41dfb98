// Package nethttp is the data plane's driver on net/http (contract, 4). It serves HTTP/2,
// over TLS and in cleartext with prior knowledge. HTTP/1.1 requests whose upstream speaks
// TLS or HTTP/2 come from proxy/h1, which has already decided them.
//
//	HTTP/2 ─► limits of the head ─► admit.Decide ─┬─► refuse, with a JSON body
//	                                              ├─► preflight
//	HTTP/1.1 ─► ServeDecided ─────────────────────┴─► upstream.Pool.Send ─► copy, or tunnel
//
// The rules of proxying are those of package proxy. This package makes net/http follow
// them, above all when it refuses a request whose body is still arriving (refuse.go).
//
// If net/http cannot parse a request, it resets the stream before this package sees it.
package nethttp
