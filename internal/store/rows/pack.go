package rows

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// The first byte of packed data is its encoding.
const (
	packedRaw  = 0
	packedGzip = 1
)

// packFrom is the size from which on data is compressed. An OpenAPI document of 13 MB shrinks to
// about 1 MB in 0.1 s.
const packFrom = 4 << 10

// pack returns b, compressed if it is long, in the form that unpack reads.
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
	if out.Len() > len(b) { // b was compressed already
		return append([]byte{packedRaw}, b...), nil
	}
	return out.Bytes(), nil
}

// unpack returns the data that pack was called with. The checksum of gzip detects damage.
func unpack(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errors.New("packed data is empty")
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
		return nil, fmt.Errorf("packed data has the unknown encoding %d", b[0])
	}
}
