// Package h1 is the HTTP/1.1 engine of the data plane (contract, 4.1 to 4.5):
// it reads requests, has them decided by package admit, and exchanges them with
// plain HTTP/1.1 upstreams.
//
//	client ─► http1.RequestParser ─► admit.Decide ─► refuse
//	                                              ├► request writer ─► upstream
//	client ◄──────────── relay ◄──────────────────────── answer
//
// What rewrites messages does no I/O: the request writer (request.go), the relay
// of answers (relay.go) and the recoder of bodies (recode.go) turn bytes into bytes
// and give the same however their input is split. Connections drive them:
//
//   - A plain TCP connection is read by one call of syscall.RawConn.Read for its
//     whole life (pump.go): each time it is readable, the request is received,
//     decided and exchanged within the callback. No read finds nothing, no
//     buffer is held while the connection is idle, and nothing is allocated.
//   - Everything else (TLS, bodies that are still coming, upgrades) is read in
//     the ordinary way by the same goroutine (blocking.go).
//
// An upstream connection is read by RawConn.Read as well (exchange.go). One sweeper
// ends what takes too long (sweep.go), so that no request sets a timer but one
// whose client waits for leave to send its body.
//
// Every request gives one record (record.go), put before the last byte of its
// answer goes out; one that lasts gives two, the first of which the sweeper puts.
package h1
