// Package http1 reads HTTP/1.1 messages out of byte slices, and does no I/O
// (RFC 9112; contract, 4.5). Whoever holds the bytes calls a parser again each
// time there are more of them; a parser remembers how far it came and answers
// the same however the bytes were split.
//
// It is strict, because two parsers that read one message differently are a
// hole: whatever is not the grammar is an error, and nothing is repaired.
//
//	RequestParser ─► Request (spans into the buffer, framing of the body)
//	ResponseParser ─► Response (the same)
//	Chunked ─► the data of a chunked body, then its trailer section
package http1
