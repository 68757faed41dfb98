// Package edge is the front of the data plane: its listeners, TLS, the PROXY
// protocol and the limits on connections (contract, sections 1, 4.4 and 4.5). It accepts
// connections, finds out the client and the protocol of each, and hands it to the engine for that
// protocol.
//
//	accept ─► connection limits ─► PROXY header, from trusted proxies only
//	        ─► TLS ─► ALPN "h2" ───────────────────────► HTTP2 (proxy/h2)
//	        │       └► "http/1.1", or no ALPN ─────────► HTTP1 (proxy/h1), blocking
//	        └► first bytes ─► HTTP/2 connection preface ► HTTP2 (proxy/h2)
//	                        └► anything else ──────────► HTTP1 (proxy/h1), pump
//
// Each connection has one goroutine. The first bytes are peeked at and stay in the
// socket, so that the HTTP/1.1 engine receives a bare TCP connection, from which at most a PROXY
// header has been read. One deadline, Config.HeadTimeout, covers everything up to that point,
// including the TLS handshake.
package edge
