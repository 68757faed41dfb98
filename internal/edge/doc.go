// Package edge holds the listeners of the data plane: it accepts connections,
// learns whose they are, and gives each to the driver of its protocol (contract,
// sections 1, 4.4 and 4.5).
//
//	accept ─► caps ─► PROXY header, from trusted proxies alone
//	        ─► TLS ─► ALPN h2 ──────────────────────────► net/http (edge/h2)
//	        │       └► http/1.1, or none ───────────────► engine (edge/h1), blocking
//	        └► first bytes ─► preface of HTTP/2 ────────► net/http (edge/h2)
//	                        └► anything else ───────────► engine (edge/h1), pump
//
// Each connection has one goroutine. The first bytes are looked at and left in
// the socket, so that the engine gets a bare TCP connection to which nothing has
// happened. Everything up to there, a handshake included, has one deadline.
package edge
