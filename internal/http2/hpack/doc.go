// Package hpack decompresses the heads of HTTP/2 messages, without I/O (HPACK, RFC 7541).
//
// A direction of a connection has a dynamic table, which both sides keep in step, so every
// header block must be given to the Decoder in the order in which it arrived.
//
//	Decoder: a header block ─► fields, one at a time
//
// It works within fixed bounds: the table holds at most TableSize bytes, counted as the
// RFC does, and strings are no longer decoded once a block exceeds the Limits. Once its
// memory has grown to what a connection needs, it does not allocate.
package hpack

// TableSize is the maximum size of a dynamic table in bytes, as RFC 7541, 4.1 counts
// them: 32 for each entry, and its name and value. It is the default of
// SETTINGS_HEADER_TABLE_SIZE, so a connection need not announce it.
const TableSize = 4096

// overhead is what an entry of the dynamic table counts besides its name and value
// (RFC 7541, 4.1), and a field of a header list as well (RFC 9113, 6.5.2).
const overhead = 32
