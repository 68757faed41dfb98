package hpack

import (
	"encoding/binary"
	"math/bits"
)

// codeLengths are the lengths in bits of the Huffman codes of the 256 bytes and of EOS
// (RFC 7541, appendix B). The code is canonical: codes ascend with their length, and
// among codes of one length with the byte. So the lengths determine it.
const codeLengths = "" +
	"\x0d\x17\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x18\x1e\x1c\x1c\x1e\x1c\x1c" + // 0x00
	"\x1c\x1c\x1c\x1c\x1c\x1c\x1e\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x1c" + // 0x10
	"\x06\x0a\x0a\x0c\x0d\x06\x08\x0b\x0a\x0a\x08\x0b\x08\x06\x06\x06" + //  !"#$%&'()*+,-./
	"\x05\x05\x05\x06\x06\x06\x06\x06\x06\x06\x07\x08\x0f\x06\x0c\x0a" + // 0123456789:;<=>?
	"\x0d\x06\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07" + // @ABCDEFGHIJKLMNO
	"\x07\x07\x07\x07\x07\x07\x07\x07\x08\x07\x08\x0d\x13\x0d\x0e\x06" + // PQRSTUVWXYZ[\]^_
	"\x0f\x05\x06\x05\x06\x05\x06\x06\x06\x05\x07\x07\x06\x06\x06\x05" + // `abcdefghijklmno
	"\x06\x07\x06\x05\x05\x06\x07\x07\x07\x07\x07\x0f\x0b\x0e\x0d\x1c" + // pqrstuvwxyz{|}~
	"\x14\x16\x14\x14\x16\x16\x16\x17\x16\x17\x17\x17\x17\x17\x18\x17" + // 0x80
	"\x18\x18\x16\x17\x18\x17\x17\x17\x17\x15\x16\x17\x16\x17\x17\x18" + // 0x90
	"\x16\x15\x14\x16\x16\x17\x17\x15\x17\x16\x16\x18\x15\x16\x17\x17" + // 0xa0
	"\x15\x15\x16\x15\x17\x16\x17\x17\x14\x16\x16\x16\x17\x16\x16\x17" + // 0xb0
	"\x1a\x1a\x14\x13\x16\x17\x16\x19\x1a\x1a\x1a\x1b\x1b\x1a\x18\x19" + // 0xc0
	"\x13\x15\x1a\x1b\x1b\x1a\x1b\x18\x15\x15\x1a\x1a\x1c\x1b\x1b\x1b" + // 0xd0
	"\x14\x18\x14\x15\x16\x15\x15\x17\x16\x16\x19\x19\x18\x18\x1a\x17" + // 0xe0
	"\x1a\x1b\x1a\x1a\x1b\x1b\x1b\x1b\x1b\x1c\x1b\x1b\x1b\x1b\x1b\x1a" + // 0xf0
	"\x1e" // EOS

const (
	eos       = 256 // the symbol behind the 256 bytes
	shortCode = 5   // bits of the shortest code
	longCode  = 30  // bits of the longest code
	tableBits = 12  // bits that decodeTable looks at
)

// huffman holds what is computed from codeLengths.
//
// The decoder looks at the next 12 bits, which contain one or two whole codes in most
// texts. Longer codes, which rare bytes have, are found by comparing with the last code of each
// length.
type huffman struct {
	code   [256]uint32 // right-aligned
	length [256]uint8
	pairs  [1 << tableBits]pair
	order  [eos + 1]uint16      // symbols by code
	end    [longCode + 1]uint64 // the first 32 bits that are above the codes of a length
	shift  [longCode + 1]int    // what to add to a code of a length for its position in order
}

// pair is what the decoder reads from 12 bits at once.
type pair struct {
	symbols [2]byte
	bits    uint8 // of all symbols together
	n       uint8 // number of symbols, 0 if the first has more than 12 bits
}

var codes = makeHuffman() //nolint:gochecknoglobals // a table that is never written

func makeHuffman() *huffman {
	h := new(huffman)
	next, position := uint32(0), 0
	for length := shortCode; length <= longCode; length++ {
		next <<= 1
		h.shift[length] = position - int(next)
		for symbol := range len(codeLengths) {
			if int(codeLengths[symbol]) != length {
				continue
			}
			if symbol != eos {
				h.code[symbol], h.length[symbol] = next, uint8(length)
			}
			h.order[position] = uint16(symbol)
			next++
			position++
		}
		h.end[length] = uint64(next) << (32 - length)
	}
	for window := range uint32(len(h.pairs)) {
		p := &h.pairs[window]
		for p.n < 2 {
			symbol, length := h.lookUp(window << (32 - tableBits) << p.bits)
			if int(p.bits)+length > tableBits {
				break
			}
			p.symbols[p.n] = byte(symbol)
			p.n++
			p.bits += uint8(length)
		}
	}
	return h
}

// lookUp returns the symbol with which 32 bits begin, and the length of its code.
func (h *huffman) lookUp(window uint32) (symbol uint16, length int) {
	length = shortCode
	for uint64(window) >= h.end[length] {
		length++
	}
	return h.order[int(window>>(32-length))+h.shift[length]], length
}

// decoding is the result of decodeHuffman.
type decoding uint8

const (
	decoded  decoding = iota
	overflow          // the text is longer than dst
	invalid           // it contains EOS, or does not end in a padding of up to 7 ones
)

// minDecoded and maxDecoded bound the length of the text whose code has n bytes.
func minDecoded(n int) int { return (8*n - 7 + longCode - 1) / longCode }
func maxDecoded(n int) int { return 8 * n / shortCode }

// decodeHuffman decodes src into dst and returns the number of bytes that it wrote (RFC
// 7541, 5.2).
func decodeHuffman(dst, src []byte) (n int, result decoding) {
	var window uint64 // the next bits of src, left-aligned
	var have uint     // how many
	for {
		if len(src) >= 8 {
			window |= binary.BigEndian.Uint64(src) >> have
			src = src[(63-have)>>3:]
			have |= 56
		} else {
			for have <= 56 && len(src) > 0 {
				window |= uint64(src[0]) << (56 - have)
				src = src[1:]
				have += 8
			}
		}
		enough := uint(longCode)
		if len(src) == 0 {
			enough = 1
		}
		for have >= enough {
			if p := &codes.pairs[window>>(64-tableBits)]; n+1 < len(dst) && p.n > 0 && uint(p.bits) <= have {
				dst[n], dst[n+1] = p.symbols[0], p.symbols[1]
				n += int(p.n)
				window <<= p.bits
				have -= uint(p.bits)
				continue
			}
			symbol, length := codes.lookUp(uint32(window >> 32))
			if uint(length) > have { // the padding, which begins as EOS does
				if have > 7 || bits.LeadingZeros64(^window) < int(have) {
					return n, invalid
				}
				return n, decoded
			}
			if symbol == eos {
				return n, invalid
			}
			if n == len(dst) {
				return n, overflow
			}
			dst[n] = byte(symbol)
			n++
			window <<= length
			have -= uint(length)
		}
		if len(src) == 0 {
			return n, decoded
		}
	}
}

// huffmanLen returns the number of bytes that appendHuffman appends for s.
func huffmanLen(s []byte) int {
	n := 0
	for _, c := range s {
		n += int(codes.length[c])
	}
	return (n + 7) / 8
}

// appendHuffman appends the code of s, padded with ones.
func appendHuffman(dst, s []byte) []byte {
	var window uint64 // what is not appended yet, right-aligned
	var have uint     // bits
	for _, c := range s {
		window = window<<codes.length[c] | uint64(codes.code[c])
		have += uint(codes.length[c])
		if have >= 32 {
			have -= 32
			dst = binary.BigEndian.AppendUint32(dst, uint32(window>>have))
		}
	}
	if pad := -have & 7; pad > 0 {
		window = window<<pad | (1<<pad - 1)
		have += pad
	}
	for have > 0 {
		have -= 8
		dst = append(dst, byte(window>>have))
	}
	return dst
}
