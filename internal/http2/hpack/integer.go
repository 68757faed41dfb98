package hpack

// maxContinuation is the number of bytes that may follow the prefix of an integer. With 4
// of them an integer has up to 28 bits, far more than any index, length or table size
// that is valid here.
const maxContinuation = 4

// readInteger reads the integer at the beginning of b, whose prefix has the given number
// of bits (RFC 7541, 5.1). It returns the integer and its length in bytes. The error is
// ErrTruncated or ErrInteger.
func readInteger(b []byte, prefix uint) (value, length int, err error) {
	if len(b) == 0 {
		return 0, 0, ErrTruncated
	}
	limit := 1<<prefix - 1
	value = int(b[0]) & limit
	if value < limit {
		return value, 1, nil
	}
	for i := 1; i < len(b) && i <= maxContinuation; i++ {
		value += int(b[i]&0x7f) << (7 * (i - 1))
		if b[i] < 0x80 {
			return value, i + 1, nil
		}
	}
	if len(b) > maxContinuation {
		return 0, 0, ErrInteger
	}
	return 0, 0, ErrTruncated
}

// appendInteger appends value, with a prefix of the given number of bits. The bits of
// first that are above the prefix say what the integer is.
func appendInteger(dst []byte, first byte, prefix uint, value int) []byte {
	limit := 1<<prefix - 1
	if value < limit {
		return append(dst, first|byte(value))
	}
	dst = append(dst, first|byte(limit))
	value -= limit
	for value >= 0x80 {
		dst = append(dst, byte(value)|0x80)
		value >>= 7
	}
	return append(dst, byte(value))
}
