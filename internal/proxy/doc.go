// Package proxy holds what the data plane's drivers share: the rules of proxying, each
// stated once.
//
//	proxy/h1       the HTTP/1.1 engine, to plain HTTP/1.1 upstreams
//	proxy/nethttp  the driver on net/http: HTTP/2 clients, and upstreams over TLS or HTTP/2
//
// A driver reads a request, has it decided by package admit, and exchanges it with the
// upstream. How bytes are read and written is the driver's business; what passes, what
// is replaced, what is refused and what is recorded is not.
package proxy
