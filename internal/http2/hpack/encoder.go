package hpack

import "bytes"

// Encoder encodes the header blocks of one direction of a connection (RFC 7541):
//
//	dst = e.Start(dst)
//	dst = e.Append(dst, name, value, false) // for each field
//
// Every block must be sent, in the order in which the blocks were encoded.
//
// A field goes into the dynamic table if its name is not in a table yet, or if the same field was
// left out recently: so fields whose value differs in each message do not displace fields that stay
// the same. Secrets never go into it, so that nobody who can add fields to the connection and
// measure the length of its blocks can guess them (RFC 7541, 7.1).
//
// An Encoder must not be used by two goroutines at the same time.
type Encoder struct {
	table   table
	index   index
	secrets []string

	seen    [32]uint32 // hashes of fields that were not indexed
	update  bool       // the next block begins with a size update
	emptied bool       // the table was emptied, and the other side does not know yet
}

// longName is the length in bytes up to which a name is lowered without memory of the heap. Few
// names exceed it.
const longName = 128

// shortCookie is the length in bytes from which on a cookie is not short: its value is too long to
// be guessed (RFC 7541, 7.1.3).
const shortCookie = 20

// The fields of the static table that are secrets.
const (
	staticAuthorization      = 23
	staticCookie             = 32
	staticProxyAuthorization = 49
	staticSetCookie          = 55
)

// NewEncoder returns an encoder with an empty dynamic table of TableSize, the size that
// holds until the other side's settings say otherwise. Secrets are the values of Authorization,
// Proxy-Authorization and Set-Cookie, short values of Cookie, and the values of secrets: names in
// lower case, which the caller must not change.
func NewEncoder(secrets []string) *Encoder {
	return &Encoder{table: table{max: TableSize}, secrets: secrets}
}

// SetTableSize applies the other side's SETTINGS_HEADER_TABLE_SIZE, before the block that
// follows the acknowledgement of its settings. The encoder uses at most TableSize.
func (e *Encoder) SetTableSize(n uint32) {
	size := int(min(n, TableSize))
	switch {
	case size == e.table.max:
		return
	case size > e.table.max && e.update:
		// The next block has to say that the table was smaller in the meantime (RFC 7541,
		// 4.2). It says 0, because the decoder of x/net, which many Go programs use, accepts a
		// second update only if the table is empty.
		e.table.evict(0)
		e.emptied = true
	}
	e.table.setMax(size)
	e.update = true
}

// Start begins a header block. It appends the changes of the dynamic table's size that the other
// side must know.
func (e *Encoder) Start(dst []byte) []byte {
	if !e.update {
		return dst
	}
	if e.emptied {
		dst = appendInteger(dst, 0x20, 5, 0)
	}
	e.update, e.emptied = false, false
	return appendInteger(dst, 0x20, 5, e.table.max)
}

// Append appends a field. Its name is sent in lower case (RFC 9113, 8.2.1). never says that the
// field is a secret, and must stay so on every hop (RFC 7541, 6.2.3), as Field.NeverIndexed did
// when it was received.
func (e *Encoder) Append(dst, name, value []byte, never bool) []byte {
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			return e.appendLowered(dst, name, i, value, never)
		}
	}
	return e.append(dst, name, value, never)
}

// appendLowered is Append for a name whose first upper-case letter is at the given index.
func (e *Encoder) appendLowered(dst, name []byte, upper int, value []byte, never bool) []byte {
	var short [longName]byte
	lower := append(short[:0], name...)
	for i, c := range lower[upper:] {
		if 'A' <= c && c <= 'Z' {
			lower[upper+i] = c | 0x20
		}
	}
	return e.append(dst, lower, value, never)
}

// append is Append for a name in lower case.
func (e *Encoder) append(dst, name, value []byte, never bool) []byte {
	nameHash := hashOf(0, name)
	first := staticNames.find(nameHash, name)
	if never || e.isSecret(first, name, value) {
		return e.appendLiteral(dst, 0x10, 4, e.nameIndex(first, nameHash, name), name, value)
	}
	for i := first; i > 0 && i <= staticLen && bytes.Equal(static[i].name, name); i++ {
		if bytes.Equal(static[i].value, value) {
			return append(dst, 0x80|byte(i))
		}
	}
	pairHash := hashOf(nameHash, value)
	if i := e.index.find(&e.table, pairHash, name, value, true); i >= 0 {
		return appendInteger(dst, 0x80, 7, staticLen+1+i)
	}
	at := e.nameIndex(first, nameHash, name)
	if !e.indexes(at, pairHash, len(name)+len(value)+overhead) {
		return e.appendLiteral(dst, 0x00, 4, at, name, value)
	}
	dst = e.appendLiteral(dst, 0x40, 6, at, name, value)
	e.table.reserve(len(name) + len(value))
	e.table.add(name, value, 0)
	e.index.add(&e.table, nameHash, pairHash)
	return dst
}

// isSecret reports whether a field is a secret by its name, whose first entry in the
// static table is given.
func (e *Encoder) isSecret(first int, name, value []byte) bool {
	switch first {
	case staticAuthorization, staticProxyAuthorization, staticSetCookie:
		return true
	case staticCookie:
		if len(value) < shortCookie {
			return true
		}
	}
	for _, s := range e.secrets {
		if string(name) == s {
			return true
		}
	}
	return false
}

// nameIndex returns the index of a field with a name, or 0. The static table comes first.
func (e *Encoder) nameIndex(first int, hash uint64, name []byte) int {
	if first > 0 {
		return first
	}
	if i := e.index.find(&e.table, hash, name, nil, false); i >= 0 {
		return staticLen + 1 + i
	}
	return 0
}

// indexes reports whether a field that is in neither table goes into the dynamic table. If not, it
// notes the field. A field that takes more than half of the table never goes into it.
func (e *Encoder) indexes(nameIndex int, hash uint64, size int) bool {
	if size > e.table.max/2 {
		return false
	}
	seen, high := &e.seen[hash%uint64(len(e.seen))], uint32(hash>>32)
	if nameIndex == 0 || *seen == high {
		return true
	}
	*seen = high
	return false
}

// appendLiteral appends a literal, with the index of its name if that is not 0.
func (e *Encoder) appendLiteral(dst []byte, kind byte, prefix uint, nameIndex int, name, value []byte) []byte {
	dst = appendInteger(dst, kind, prefix, nameIndex)
	if nameIndex == 0 {
		dst = appendText(dst, name)
	}
	return appendText(dst, value)
}

// appendText appends a string, Huffman-coded if that is shorter (RFC 7541, 5.2).
func appendText(dst, s []byte) []byte {
	if n := huffmanLen(s); n < len(s) {
		return appendHuffman(appendInteger(dst, 0x80, 7, n), s)
	}
	return append(appendInteger(dst, 0x00, 7, len(s)), s...)
}
