package upstreamtest

import (
	"encoding/binary"
	"io"
)

// The HTTP/2 frames that ServeConstantHTTP2 handles (RFC 9113, 6).
const (
	frameData     = 0
	frameHeaders  = 1
	frameSettings = 4
	framePing     = 6
	frameWindow   = 8

	frameHead = 9 // bytes before the payload
	flagEnd   = 1 // END_STREAM, or ACK
	preface   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

// AppendFrame appends an HTTP/2 frame.
func AppendFrame(dst []byte, kind, flags byte, stream uint32, payload string) []byte {
	dst = append(dst, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	return append(binary.BigEndian.AppendUint32(dst, stream), payload...)
}

// ServeConstantHTTP2 serves the same response to each request over cleartext HTTP/2, once all of the
// request has arrived, and allocates nothing for it. The response is the header block head, then
// body, and then the block trailers unless that is empty. It returns the server's address.
func ServeConstantHTTP2(t Test, head, body, trailers string) string {
	t.Helper()
	var bodyFlags byte
	if trailers == "" {
		bodyFlags = flagEnd
	}
	response := AppendFrame(nil, frameHeaders, 4, 0, head)
	second := len(response)
	response = AppendFrame(response, frameData, bodyFlags, 0, body)
	third := len(response)
	if trailers != "" {
		response = AppendFrame(response, frameHeaders, 4|flagEnd, 0, trailers)
	}
	return Serve(t, func(c *Conn) {
		in, out := make([]byte, 64<<10), make([]byte, 0, 64<<10)
		mine := append([]byte(nil), response...)
		if _, err := io.ReadFull(c.Conn, in[:len(preface)]); err != nil {
			return
		}
		out = AppendFrame(out, frameSettings, 0, 0, "")
		for have, taken := 0, 0; ; {
			if _, err := c.Conn.Write(out); err != nil {
				return
			}
			n, err := c.Conn.Read(in[have:])
			if err != nil {
				return
			}
			have += n
			out = out[:0]
			if taken >= 1<<15 { // half of the connection's window
				out = append(out, 0, 0, 4, frameWindow, 0, 0, 0, 0, 0)
				out = binary.BigEndian.AppendUint32(out, uint32(taken))
				taken = 0
			}
			at := 0
			for have-at >= frameHead {
				size := int(in[at])<<16 | int(in[at+1])<<8 | int(in[at+2])
				if have-at < frameHead+size {
					break
				}
				kind, flags, stream := in[at+3], in[at+4], in[at+5:at+9]
				if kind == frameData {
					taken += size
				}
				switch {
				case kind == frameSettings && flags == 0:
					out = AppendFrame(out, frameSettings, flagEnd, 0, "")
				case kind == framePing && flags == 0:
					out = AppendFrame(out, framePing, flagEnd, 0, string(in[at+frameHead:at+frameHead+size]))
				case (kind == frameHeaders || kind == frameData) && flags&flagEnd != 0:
					copy(mine[5:], stream)
					copy(mine[second+5:], stream)
					if trailers != "" {
						copy(mine[third+5:], stream)
					}
					out = append(out, mine...)
				}
				at += frameHead + size
			}
			have = copy(in, in[at:have])
		}
	})
}
