package http2

import "strconv"

// Code is the reason of a RST_STREAM or GOAWAY frame (RFC 9113, 7).
type Code uint32

// The codes.
const (
	NoError Code = iota
	ProtocolError
	InternalError
	FlowControlError
	SettingsTimeout
	StreamClosed
	FrameSizeError
	RefusedStream
	Cancel
	CompressionError
	ConnectError
	EnhanceYourCalm
	InadequateSecurity
	HTTP11Required
)

var codeNames = [...]string{ //nolint:gochecknoglobals // a table that is never written
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
	"REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
}

// String returns the name of the code in the RFC.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "0x" + strconv.FormatUint(uint64(c), 16)
}

// ConnError is the error that ended a connection: the peer violated the protocol, or did
// something too often.
type ConnError struct {
	Code   Code
	Reason string
}

func (e *ConnError) Error() string { return "http2: " + e.Code.String() + ": " + e.Reason }

// MalformedError is the error for a head or trailers that are malformed (RFC 9113, 8.1.1).
// The stream is reset with PROTOCOL_ERROR. The stream of a request is reset by Done, so that a
// server may respond before.
type MalformedError string

func (e MalformedError) Error() string { return "http2: malformed message: " + string(e) }
