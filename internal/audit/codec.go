package audit

import (
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// Codec packs and unpacks the contents of blocks. It is safe for concurrent use.
type Codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

// The bounds of what is unpacked, in bytes: damaged or hostile content must not
// take more memory than this.
const (
	maxColumn  = 16 << 20
	maxContent = 64 << 20
)

// NewCodec returns a codec. Its memory is a few megabytes once it is used.
func NewCodec() (*Codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(512<<10), zstd.WithSingleSegment(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("make the encoder of audit blocks: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxColumn+1<<20),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("make the decoder of audit blocks: %w", err)
	}
	return &Codec{enc, dec}, nil
}

// A column is its length unpacked, a byte that tells how it is stored, and what
// is stored.
const (
	stored   = 0 // as it is
	constant = 1 // one byte, which all are
	packed   = 2 // a length and a zstd frame
)

// packFrom is the size from which packing may gain something.
const packFrom = 48

// appendColumn writes a column; c nil packs nothing, which is fast and not small.
func appendColumn(dst []byte, c *Codec, raw []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(raw)))
	if len(raw) > 1 && isConstant(raw) {
		return append(dst, constant, raw[0])
	}
	if c == nil || len(raw) < packFrom {
		return append(append(dst, stored), raw...)
	}
	// The frame is made behind the room for its length, and moved if that is
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

// frameRoom is how many bytes go before a frame at most.
const frameRoom = 1 + binary.MaxVarintLen32

func isConstant(b []byte) bool {
	for _, c := range b {
		if c != b[0] {
			return false
		}
	}
	return true
}

// column is one that was found and not yet unpacked.
type column struct {
	size int
	how  byte
	data []byte
}

// column finds the next column.
func (r *reader) column() column {
	c := column{size: r.size(maxColumn), how: r.byte()}
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

// unpack returns the bytes of a column, which the caller must not change.
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
	// A frame that claims another size than the column is refused before
	// memory is taken for it.
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
