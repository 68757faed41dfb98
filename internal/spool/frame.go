package spool

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

// Frame is what one call of Append has added.
type Frame struct {
	Records int       // how many records the payload has
	At      time.Time // when it was added, in whole microseconds
	Payload []byte
}

// DamageError says that a frame could not be read, and that the rest of its segment was skipped.
type DamageError struct {
	Segment string    // name of the file
	Skipped int64     // bytes that were skipped
	Records int       // least number of records in the damaged frame: 1 if its head cannot be read either
	At      time.Time // when it was added; zero if that is unknown
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged: the last %d bytes cannot be read", e.Segment, e.Skipped)
}

// The head of a frame in the file: the length of the payload, the number of records, the time in
// microseconds, the checksum of the payload, and the checksum of the head up to here.
const headSize = 4 + 4 + 8 + 4 + 4

// maxPayload is the maximum size of a payload in bytes.
const maxPayload = 128 << 20

//nolint:gochecknoglobals // a constant table
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends a frame as it is in the file.
func appendFrame(b []byte, f Frame) []byte {
	from := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.Payload)))
	b = binary.LittleEndian.AppendUint32(b, uint32(f.Records))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.At.UnixMicro()))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(f.Payload, castagnoli))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
	return append(b, f.Payload...)
}

// head is the decoded head of a frame.
type head struct {
	length   int64
	frame    Frame // without the payload
	checksum uint32
}

// readHead decodes the head of a frame. ok is false if it is damaged.
func readHead(b []byte) (h head, ok bool) {
	if crc32.Checksum(b[:headSize-4], castagnoli) != binary.LittleEndian.Uint32(b[headSize-4:]) {
		return head{}, false
	}
	h.length = int64(binary.LittleEndian.Uint32(b))
	h.frame = Frame{Records: int(binary.LittleEndian.Uint32(b[4:])), At: time.UnixMicro(int64(binary.LittleEndian.Uint64(b[8:])))}
	h.checksum = binary.LittleEndian.Uint32(b[16:])
	return h, h.length <= maxPayload
}
