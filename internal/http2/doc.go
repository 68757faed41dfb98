// Package http2 is the protocol of an HTTP/2 connection (RFC 9113), for both of its ends,
// without I/O: bytes in, events out. It starts no goroutines and reads no clock.
//
//	received bytes ─► Conn.Feed ─► Conn.Next ─► events ─► owner
//	                                  │ replies             │ BeginHead, Field, EndHead,
//	                                  ▼                     ▼ Data, Reset, Consumed, Done
//	                                output ◄────────────────┘
//	                                  └─► Conn.Take ─► bytes to send
//
// The owner of a [Conn] is the code that has the connection: the engine for clients, or the pool for upstreams.
//
// A Conn consumes all bytes that it is fed, however they are split, and keeps no more of
// them than an incomplete header block. The data of bodies is passed through without a
// copy. What the protocol asks for in reply (acknowledgements, window updates, resets, the
// final GOAWAY) is in the output when Next returns.
//
// # Streams
//
// The state of a stream is kept from its first HEADERS frame until the owner calls Done:
//
//	                HEADERS                      Done
//	idle ──────────────────► open ─────────────────────────────► closed
//	                          │  remoteEnd: END_STREAM received     ▲
//	                          │  localEnd: END_STREAM sent          │
//	                          │  wasReset: RST_STREAM received      │
//	                          └─ weReset: RST_STREAM sent ──────────┘
//
// So a stream holds its slot among MAX_CONCURRENT_STREAMS until the exchange has ended,
// not until a reset, and a client gains nothing by resetting its requests.
//
// # Heads
//
// A head is decoded into the form of package http1: text as in HTTP/1.1, and spans into it
// with the identifiers of fields. So decisions, header policies and writers work with the
// heads of both versions alike:
//
//	:method, :path        Request.Method, Request.Target
//	:authority            the field Host, the first in the text
//	:protocol             Request.Protocol; the request reads as a GET with Upgrade
//	cookie, several times one field, joined with "; "
//	:status               Response.Status and a status line without a reason
//	a body without        Chunked: its length is unknown
//	content-length
//
// The text has the field lines one after the other and ends with an empty line, as a head over
// HTTP/1.1 does, so runs of fields can be copied from it.
//
// # Bounds
//
// A peer cannot make a Conn hold more than a header block, a table of streams and two
// dynamic tables of HPACK, and cannot cause more work than is due for what it sends: see limits.go.
// It can make the output grow until the owner takes it; the owner must not feed a Conn that is
// Backlogged.
package http2
