// Package h2 is the HTTP/2 engine of the data plane for clients (contract, 4.1 to 4.5; RFC
// 9113): it reads requests, asks package admit for a verdict on each, and exchanges them with
// upstreams. The protocol of a connection is package http2; the rules of proxying are in package
// proxy; the upstream half of an exchange is package send.
//
//	client ─► conn.receive ─► http2.Conn ─► stream ─► admit.Decide ─┬─► refuse
//	                             │                                  ├─► send.H1Try ─► upstream
//	client ◄── conn.flush ◄──────┘◄──── frames ◄────────────────────┴─► send.H2Try ─► upstream
//
// # Goroutines and locks
//
// One goroutine reads a connection (conn.go): it decides requests and responds to those that
// are refused. On Linux it reads within one call of syscall.RawConn.Read, also over TLS (package
// tlspump), so that it reads only when something has arrived; elsewhere it uses blocking calls. It
// waits for the client to read only when too much output is unsent. A forwarded request has
// another goroutine (workers.go), and a second one while its body is still arriving.
//
// A request that has arrived whole, and that an HTTP/2 upstream takes at once, needs neither
// goroutine (call.go): the reader opens the stream to the upstream, and sends it together with the
// other requests that it has received. The reader of the upstream's connection relays the response
// if it has arrived whole and the client's connection has room for it, and sends it together with
// the other responses that it has received. In every other case a goroutine goes on with the
// exchange, so that no reader waits for another connection.
//
// All of them use the http2.Conn and the state of streams with conn.mu held, and write to the
// client through flush: a goroutine that has appended frames sends them, unless another is sending
// already. Before it does, it lets the other streams append theirs. So responses that are ready
// together share one TLS record and one system call.
//
// # Time
//
// No request sets a timer. The sweeper (sweep.go) visits all connections at each tick, with
// their lock held: it ends requests that have exceeded their time or may not go on, emits the start
// record of long requests, and drains connections.
//
// # Ends
//
// A stream ends with its response, or is cut for one of the reasons of type cut. A cut makes
// everything that the stream waits for fail: the upstream's connection gets a deadline in the
// past, and what waits for the client is woken. The goroutine of the stream then emits the record
// and frees the stream's slot; a stream without a goroutine gets one for this. A reset by the
// client alone does not free the slot.
package h2
