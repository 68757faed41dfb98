// Package http1 parses HTTP/1.1 messages from byte slices, without I/O (RFC 9112;
// contract, 4.5).
//
// The parsers are incremental. The caller appends received bytes to a buffer and calls
// the parser again; the parser remembers how far it got. The result does not depend on
// how the bytes were split.
//
// Parsing is strict. Two parsers that read one message differently make request
// smuggling possible, so any deviation from the grammar is an error and nothing is
// repaired.
//
//	RequestParser  ─► Request: spans into the buffer, and the framing of the body
//	ResponseParser ─► Response: the same
//	Chunked        ─► the data of a chunked body
//	TrailerParser  ─► Trailers: the trailer section of a chunked body
//
// Heads that arrive over another version of HTTP get the same form from an [Assembler].
package http1
