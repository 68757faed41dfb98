// Package h1 is the HTTP/1.1 engine of the data plane (contract, 4.1 to 4.5): it reads
// requests, has them decided by package admit, and exchanges them with plain HTTP/1.1
// upstreams. The rules of proxying are those of package proxy.
//
//	client ─► http1.RequestParser ─► admit.Decide ─┬─► respond (refusals, preflights)
//	                                               └─► requestWriter ─┐
//	client ◄─ responseWriter ◄─ responseReader ◄──────────────────── upstream
//	          └ client half ──┘ └ upstream half: roundTrip ──────────────────┘
//
// # Exchange
//
// An exchange is one request with its response. Its client half (exchange.go) belongs to
// the client's connection; its upstream half (roundtrip.go) knows only a connection to the
// upstream and a receiver of the response, and can serve a stream of another engine as
// well. Exchanges are pooled; all that is of one request is zeroed whole between two.
//
// What rewrites messages does no I/O: requestWriter (request.go), responseReader
// (response.go), responseWriter (response_writer.go) and recoder (body.go) turn bytes into
// bytes, the same however their input is split.
//
// # Connections
//
// A plain TCP connection is read by one call of syscall.RawConn.Read for its whole life
// (pump.go): each time it is readable, the request is received, decided and exchanged
// within the callback. No read finds nothing, no buffer is held while the connection is
// idle, and nothing is allocated. An upstream's connection is read in the same way.
//
// Everything else (TLS, bodies that are still coming, upgrades) is read with ordinary
// calls by the same goroutine (blocking.go). A request for an upstream over TLS or HTTP/2
// is handed to the driver on net/http (bridge.go, adapter.go).
//
// # Time
//
// No request sets a timer, except one whose client waits for a 100. Each connection says in
// which phase it is and until when (phase.go); one goroutine, the sweeper (sweep.go), ends
// what takes too long, notices clients that have hung up, and emits the record of the start
// of requests that last.
package h1
