// Package nethttp is the data plane's driver on net/http (contract, 4): it forwards requests
// to upstreams that speak TLS or HTTP/2. The engines for HTTP/1.1 and HTTP/2 clients have read
// and decided them.
//
//	proxy/h1, proxy/h2 ─► ServeDecided ─► upstream.Pool.Send ─► copy, or tunnel
//
// The rules of proxying are those of package proxy. This package makes net/http follow
// them, above all when it refuses a request whose body is still arriving (refuse.go).
package nethttp
