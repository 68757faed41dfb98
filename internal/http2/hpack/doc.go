// Package hpack compresses and decompresses the heads of HTTP/2 messages, without I/O
// (HPACK, RFC 7541).
//
// Each direction of a connection has a dynamic table, which both sides keep in step. So
// every header block must be decoded, in the order in which the blocks arrived, and every encoded
// block must be sent.
//
//	Decoder: a header block ─► fields, one at a time
//	Encoder: fields ─► a header block, appended to a slice of the caller
//
// Both work within fixed bounds: a table holds at most TableSize bytes, counted as the
// RFC does, and a decoder stops decoding strings once a block exceeds its Limits. Once
// their memory has grown to what a connection needs, they do not allocate.
package hpack

// TableSize is the maximum size of a dynamic table in bytes, as RFC 7541, 4.1 counts
// them: 32 for each entry, and its name and value. It is the default of
// SETTINGS_HEADER_TABLE_SIZE, so a connection need not announce it.
const TableSize = 4096

// overhead is how many bytes an entry of the dynamic table counts in addition to its name and value
// (RFC 7541, 4.1), as does a field of a header list (RFC 9113, 6.5.2).
const overhead = 32
