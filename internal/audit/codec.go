package audit

import (
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// Codec compresses and decompresses the contents of blocks with zstd. It is safe for
// concurrent use.
type Codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

// The maximum sizes after decompression, in bytes. They bound the memory for damaged or
// malicious content. The extras, the last column, may be as large as a whole block.
const (
	maxColumn  = 16 << 20
	maxContent = 64 << 20
)

// NewCodec returns a codec. It takes a few megabytes of memory when it is first used.
func NewCodec() (*Codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(512<<10), zstd.WithSingleSegment(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("create the encoder of audit blocks: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxContent+1<<20),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("create the decoder of audit blocks: %w", err)
	}
	return &Codec{enc, dec}, nil
}

// The encodings of a column. A column is its decompressed length, a byte with the
// encoding, and the data.
const (
	stored   = 0 // the bytes themselves
	constant = 1 // one byte, which all bytes equal
	packed   = 2 // a length and a zstd frame
)

// packFrom is the least size worth compressing, in bytes.
const packFrom = 48

// appendColumn appends a column. It does not compress if c is nil.
func appendColumn(dst []byte, c *Codec, raw []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(raw)))
	if len(raw) > 1 && isConstant(raw) {
		return append(dst, constant, raw[0])
	}
	if c == nil || len(raw) < packFrom {
		return append(append(dst, stored), raw...)
	}
	// The frame is written after the room for its length, and moved if the length is
	// shorter.
	at := len(dst)
	dst = c.enc.EncodeAll(raw, append(dst, make([]byte, frameRoom)...))
	frame := dst[at+frameRoom:]
	if len(frame)+frameRoom >= len(raw) {
		return append(append(dst[:at], stored), raw...)
	}
	dst = binary.AppendUvarint(append(dst[:at], packed), uint64(len(frame)))
	return append(dst, frame...)
}

// frameRoom is the maximum number of bytes before a frame.
const frameRoom = 1 + binary.MaxVarintLen32

func isConstant(b []byte) bool {
	for _, c := range b {
		if c != b[0] {
			return false
		}
	}
	return true
}

// column is a column that is not yet decompressed.
type column struct {
	size int
	how  byte
	data []byte
}

// column reads the next column, which has at most so many bytes after decompression.
func (r *reader) column(most int) column {
	c := column{size: r.size(most), how: r.byte()}
	switch c.how {
	case stored:
		c.data = r.take(c.size)
	case constant:
		c.data = r.take(1)
	case packed:
		c.data = r.take(r.size(len(r.b)))
	default:
		r.fail()
	}
	return c
}

// unpack decompresses a column. The caller must not change the result.
func (c *Codec) unpack(col column) ([]byte, error) {
	switch col.how {
	case stored:
		return col.data, nil
	case constant:
		b := make([]byte, col.size)
		for i := range b {
			b[i] = col.data[0]
		}
		return b, nil
	}
	// The size in the frame is checked before memory is allocated for it.
	var head zstd.Header
	if err := head.Decode(col.data); err != nil || !head.HasFCS || head.FrameContentSize != uint64(col.size) {
		return nil, errDamaged
	}
	b, err := c.dec.DecodeAll(col.data, make([]byte, 0, col.size))
	if err != nil || len(b) != col.size {
		return nil, errDamaged
	}
	return b, nil
}
