package sqlite

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// Packed bytes begin with one that tells how the rest is coded.
const (
	packedRaw  = 0
	packedGzip = 1
)

// packFrom is the size from which bytes are compressed. A description of 13 MB
// becomes about 1 MB in a tenth of a second.
const packFrom = 4 << 10

func pack(b []byte) ([]byte, error) {
	if len(b) < packFrom {
		return append([]byte{packedRaw}, b...), nil
	}
	var out bytes.Buffer
	out.Grow(len(b)/8 + 64)
	out.WriteByte(packedGzip)
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if out.Len() > len(b) { // it was compressed already
		return append([]byte{packedRaw}, b...), nil
	}
	return out.Bytes(), nil
}

// unpack gives back what pack was given, byte for byte; the checksum of gzip
// makes sure.
func unpack(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("packed bytes are empty")
	}
	switch b[0] {
	case packedRaw:
		return b[1:], nil
	case packedGzip:
		r, err := gzip.NewReader(bytes.NewReader(b[1:]))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	default:
		return nil, fmt.Errorf("packed bytes have an unknown coding %d", b[0])
	}
}
