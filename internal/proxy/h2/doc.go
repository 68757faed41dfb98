// Package h2 is the HTTP/2 engine of the data plane for clients (contract, 4.1 to 4.5; RFC
// 9113): it reads requests, asks package admit for a verdict on each, and exchanges them with
// upstreams. The protocol of a connection is package http2; the rules of proxying are those
// of package proxy; the upstream half of an exchange with a plain HTTP/1.1 upstream is that
// of package h1.
//
//	client ─► conn.receive ─► http2.Conn ─► stream ─► admit.Decide ─┬─► refuse
//	                             │                                  ├─► h1.Trip ─► upstream
//	client ◄── conn.flush ◄──────┘◄──── frames ◄────────────────────┴─► Config.Forward
//
// # Goroutines and locks
//
// One goroutine reads a connection (conn.go): it decides requests and responds to those that
// are refused. Each request that is forwarded has a goroutine of its own, and a second one
// while its body is still arriving. All of them use the http2.Conn and the state of streams
// with conn.mu held, and write to the client through flush: whoever has appended frames
// becomes the flusher if there is none, lets the other streams append theirs first, and then
// sends everything at once. So responses that are ready together share one TLS record and
// one system call.
//
// # Time
//
// No request sets a timer. The sweeper (sweep.go) visits all connections at each tick, with
// their lock held: it ends what has exceeded its time, emits the start record of long
// requests, and drains connections.
//
// # Ends
//
// A stream ends once, by finish or by one of cut's reasons. A cut makes every wait of the
// stream fail: for the upstream by a deadline in the past, for the client by the condition of
// the connection. Its goroutine then emits the record and frees the stream's place, which a
// reset by the client alone never does.
package h2
