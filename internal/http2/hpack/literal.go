package hpack

// literal is a literal field as it stands in the block, its strings not decoded.
type literal struct {
	index       int // of the field with the same name, or 0
	name, value text
	indexing    bool // goes into the dynamic table
	never       bool // never indexed
}

// text is a string as it stands in the block (RFC 7541, 5.2).
type text struct {
	b       []byte
	huffman bool
}

// readLiteral reads the literal at the beginning of the block, which must have a byte.
func (d *Decoder) readLiteral() (lit literal, ok bool) {
	c, prefix := d.block[d.pos], uint(4)
	lit.indexing, lit.never = c>>6 == 1, c>>4 == 1
	if lit.indexing {
		prefix = 6
	}
	if lit.index, ok = d.integer(prefix); !ok {
		return lit, false
	}
	if lit.index > staticLen+d.table.n {
		d.fail(ErrIndex)
		return lit, false
	}
	if lit.index == 0 {
		if lit.name, ok = d.readText(); !ok {
			return lit, false
		}
	}
	lit.value, ok = d.readText()
	return lit, ok
}

// readText reads the string at the beginning of the rest of the block.
func (d *Decoder) readText() (t text, ok bool) {
	t.huffman = d.pos < len(d.block) && d.block[d.pos] >= 0x80
	n, ok := d.integer(7)
	if !ok {
		return t, false
	}
	if n > len(d.block)-d.pos {
		d.fail(ErrTruncated)
		return t, false
	}
	t.b = d.block[d.pos : d.pos+n : d.pos+n]
	d.pos += n
	return t, true
}

// decode puts the name, value and tag of a literal into f. Name and value may have limit bytes
// together. If they have more, or certainly will have, the result is overflow.
func (d *Decoder) decode(lit *literal, limit int, f *Field) decoding {
	used := 0
	switch i := lit.index; {
	case i == 0:
		var result decoding
		if f.Name, result = d.text(lit.name, used, limit); result != decoded {
			return result
		}
		if lit.name.huffman {
			used = len(f.Name)
		}
	case i <= staticLen:
		f.Name = static[i].name
	default:
		f.Name = d.table.nameOf(d.table.at(i - staticLen - 1))
	}
	var result decoding
	if f.Value, result = d.text(lit.value, used, limit-len(f.Name)); result != decoded {
		return result
	}
	f.Tag = 0
	if d.tags.of != nil {
		f.Tag = d.tags.of(f.Name, f.Value)
	}
	return decoded
}

// text returns a string of at most limit bytes, which it decodes into the scratch behind
// the used bytes if it is Huffman-coded. Room is taken only for what fits the limit.
func (d *Decoder) text(t text, used, limit int) ([]byte, decoding) {
	if !t.huffman {
		if len(t.b) > limit {
			return nil, overflow
		}
		return t.b, decoded
	}
	if minDecoded(len(t.b)) > limit {
		return nil, overflow
	}
	room := d.scratch.room(used, min(limit, maxDecoded(len(t.b))))
	n, result := decodeHuffman(room, t.b)
	return room[:n:n], result
}
