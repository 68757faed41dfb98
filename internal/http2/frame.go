package http2

import "encoding/binary"

// FrameType is the type of a frame (RFC 9113, 6).
type FrameType uint8

// The types of frames.
const (
	FrameData FrameType = iota
	FrameHeaders
	FramePriority
	FrameReset // RST_STREAM
	FrameSettings
	FramePushPromise
	FramePing
	FrameGoAway
	FrameWindowUpdate
	FrameContinuation
)

// Flags are the flags of a frame. Their meaning depends on its type.
type Flags uint8

// The flags.
const (
	FlagAck        Flags = 0x1 // SETTINGS, PING
	FlagEndStream  Flags = 0x1 // DATA, HEADERS
	FlagEndHeaders Flags = 0x4 // HEADERS, CONTINUATION
	FlagPadded     Flags = 0x8 // DATA, HEADERS
	FlagPriority   Flags = 0x20
)

// SettingID identifies a setting (RFC 9113, 6.5.2; RFC 8441, 3).
type SettingID uint16

// The settings.
const (
	SettingHeaderTableSize       SettingID = 0x1
	SettingEnablePush            SettingID = 0x2
	SettingMaxConcurrentStreams  SettingID = 0x3
	SettingInitialWindowSize     SettingID = 0x4
	SettingMaxFrameSize          SettingID = 0x5
	SettingMaxHeaderListSize     SettingID = 0x6
	SettingEnableConnectProtocol SettingID = 0x8
)

// Setting is a setting with its value.
type Setting struct {
	ID    SettingID
	Value uint32
}

const (
	// Preface is what a client sends before its first frame (RFC 9113, 3.4).
	Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	// FrameHeaderLen is the length of a frame's header in bytes.
	FrameHeaderLen = 9
	// MaxFrame is the maximum length of a frame's payload in bytes, in both directions: the
	// default of SETTINGS_MAX_FRAME_SIZE. A peer's higher value is not used.
	MaxFrame = 16 << 10
	// MaxWindow is the maximum size of a flow-control window in bytes.
	MaxWindow = 1<<31 - 1
	// MaxStreamID is the highest identifier of a stream.
	MaxStreamID = 1<<31 - 1

	defaultWindow = 1<<16 - 1 // of a stream and of the connection, before settings
	settingLen    = 6
	priorityLen   = 5
	pingLen       = 8
)

// FrameHeader is the header of a frame.
type FrameHeader struct {
	Length int // of the payload, in bytes
	Type   FrameType
	Flags  Flags
	Stream uint32
}

// ParseFrameHeader parses the header of a frame, which is the first FrameHeaderLen bytes of
// b. It ignores the reserved bit.
func ParseFrameHeader(b []byte) FrameHeader {
	_ = b[FrameHeaderLen-1]
	return FrameHeader{
		Length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		Type:   FrameType(b[3]),
		Flags:  Flags(b[4]),
		Stream: binary.BigEndian.Uint32(b[5:]) & MaxStreamID,
	}
}

// AppendFrameHeader appends the header of a frame.
func AppendFrameHeader(dst []byte, h FrameHeader) []byte {
	return append(dst, byte(h.Length>>16), byte(h.Length>>8), byte(h.Length), byte(h.Type), byte(h.Flags),
		byte(h.Stream>>24), byte(h.Stream>>16), byte(h.Stream>>8), byte(h.Stream))
}

// AppendSettings appends a SETTINGS frame.
func AppendSettings(dst []byte, settings ...Setting) []byte {
	dst = AppendFrameHeader(dst, FrameHeader{Length: settingLen * len(settings), Type: FrameSettings})
	for _, s := range settings {
		dst = binary.BigEndian.AppendUint16(dst, uint16(s.ID))
		dst = binary.BigEndian.AppendUint32(dst, s.Value)
	}
	return dst
}

// AppendSettingsAck appends the acknowledgement of a SETTINGS frame.
func AppendSettingsAck(dst []byte) []byte {
	return AppendFrameHeader(dst, FrameHeader{Type: FrameSettings, Flags: FlagAck})
}

// AppendData appends a DATA frame. data has at most MaxFrame bytes.
func AppendData(dst []byte, stream uint32, data []byte, end bool) []byte {
	h := FrameHeader{Length: len(data), Type: FrameData, Stream: stream}
	if end {
		h.Flags = FlagEndStream
	}
	return append(AppendFrameHeader(dst, h), data...)
}

// AppendReset appends a RST_STREAM frame.
func AppendReset(dst []byte, stream uint32, code Code) []byte {
	dst = AppendFrameHeader(dst, FrameHeader{Length: 4, Type: FrameReset, Stream: stream})
	return binary.BigEndian.AppendUint32(dst, uint32(code))
}

// AppendPing appends a PING frame, or with ack the reply to one.
func AppendPing(dst []byte, ack bool, data [pingLen]byte) []byte {
	h := FrameHeader{Length: pingLen, Type: FramePing}
	if ack {
		h.Flags = FlagAck
	}
	return append(AppendFrameHeader(dst, h), data[:]...)
}

// AppendGoAway appends a GOAWAY frame. last is the highest stream that may have been
// processed.
func AppendGoAway(dst []byte, last uint32, code Code, debug string) []byte {
	dst = AppendFrameHeader(dst, FrameHeader{Length: 8 + len(debug), Type: FrameGoAway})
	dst = binary.BigEndian.AppendUint32(dst, last)
	dst = binary.BigEndian.AppendUint32(dst, uint32(code))
	return append(dst, debug...)
}

// AppendWindowUpdate appends a WINDOW_UPDATE frame. Stream 0 is the connection.
func AppendWindowUpdate(dst []byte, stream, increment uint32) []byte {
	dst = AppendFrameHeader(dst, FrameHeader{Length: 4, Type: FrameWindowUpdate, Stream: stream})
	return binary.BigEndian.AppendUint32(dst, increment)
}

// AppendHeaders appends a header block: a HEADERS frame, and CONTINUATION frames if it has
// more than MaxFrame bytes.
func AppendHeaders(dst []byte, stream uint32, block []byte, end bool) []byte {
	start := len(dst)
	dst = append(BeginHeaders(dst), block...)
	return FinishHeaders(dst, start, stream, end)
}

// BeginHeaders appends room for the header of a HEADERS frame. The caller appends the
// header block and calls FinishHeaders.
func BeginHeaders(dst []byte) []byte {
	return append(dst, make([]byte, FrameHeaderLen)...)
}

// FinishHeaders completes the frames of a header block, where start is the length of dst
// before BeginHeaders. If the block needs several frames, it moves its parts to make room for their
// headers.
func FinishHeaders(dst []byte, start int, stream uint32, end bool) []byte {
	length := len(dst) - start - FrameHeaderLen
	h := FrameHeader{Type: FrameHeaders, Stream: stream}
	if end {
		h.Flags = FlagEndStream
	}
	if length <= MaxFrame {
		h.Length, h.Flags = length, h.Flags|FlagEndHeaders
		AppendFrameHeader(dst[:start], h)
		return dst
	}
	pieces := (length + MaxFrame - 1) / MaxFrame
	var room [FrameHeaderLen]byte
	for range pieces - 1 {
		dst = append(dst, room[:]...)
	}
	for i := pieces - 1; i > 0; i-- { // from the last, which moves furthest
		from := start + FrameHeaderLen + i*MaxFrame
		to := from + i*FrameHeaderLen
		n := min(length-i*MaxFrame, MaxFrame)
		copy(dst[to:to+n], dst[from:from+n])
		c := FrameHeader{Length: n, Type: FrameContinuation, Stream: stream}
		if i == pieces-1 {
			c.Flags = FlagEndHeaders
		}
		AppendFrameHeader(dst[:to-FrameHeaderLen], c)
	}
	h.Length = MaxFrame
	AppendFrameHeader(dst[:start], h)
	return dst
}
