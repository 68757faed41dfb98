// Package upstream keeps the connections to upstream services and sends
// requests over them (contract, 4.4 and 4.6).
//
// A Pool holds the connections of one origin; gateways whose upstreams agree in
// everything that a connection depends on share one, and a change of anything
// else leaves it alone. Each attempt to connect resolves the name again and asks
// the guard. What a Pool does beyond net/http's Transport: it bounds the time
// to the head of an answer without cutting an upload that progresses, repeats
// only what may be repeated, keeps targets byte for byte, and tells failures
// apart.
//
// An H1Pool holds plain connections for the engine of HTTP/1.1, which reads and
// writes them itself.
//
// net/http/httputil.ReverseProxy is not used above it: it does not pass the
// trailers of requests, passes those of answers unfiltered, re-encodes some
// queries, and gives no place to stop a body that grows too large.
package upstream
