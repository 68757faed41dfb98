// Package h1 is the HTTP/1.1 engine of the data plane (contract, 4.1 to 4.5): it reads
// requests, asks package admit for a verdict on each, and exchanges them with upstreams. The rules of
// proxying are in package proxy.
//
//	client ─► http1.RequestParser ─► admit.Decide ─┬─► respond (refusals, preflights)
//	                                               └─► send.Attempt ─┐
//	client ◄─ responseWriter ◄───────────────────── exchange ◄───────┘
//
// # Exchange
//
// An exchange is one request with its response. Its client half (exchange.go, forward.go) belongs to
// the client's connection. Its upstream half is a send.Attempt. Exchanges are pooled; all state of
// one request is zeroed before the next.
//
// # Connections
//
// A connection, plain or over TLS (package tlspump), is read by one call of syscall.RawConn.Read
// for its whole life (pump.go): each time it is readable, the request is received, decided and
// exchanged within the callback. So no read is made in vain, an idle connection holds no buffer,
// and nothing is allocated. Connections to upstreams are read in the same way.
//
// Everything else (bodies that are still arriving, upgrades, and all reads on systems other than
// Linux) is read with blocking calls by the same goroutine (blocking.go).
//
// # Time
//
// A request sets no timer, unless its client waits for a 100. Each connection publishes its current
// phase and deadline (phase.go). One goroutine, the sweeper (sweep.go), ends phases that exceed
// their deadline, notices clients that have hung up, emits the start record of long requests, and
// ends those whose key or gateway has ended.
package h1
