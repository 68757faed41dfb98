package health

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/upstream"
)

// exchange2 asks over HTTP/2.
func (c *check) exchange2(conn net.Conn, version string) (result, error) {
	x := &stream{check: c, conn: http2.NewConn(http2.Config{Role: http2.Client, MaxStreams: 1})}
	x.begin(version)
	if _, err := conn.Write(x.conn.Take(nil)); err != nil {
		return good, err
	}
	buf := buffers.Get().(*[maxRead]byte)
	defer buffers.Put(buf)
	for total := 0; total < maxRead; {
		n, err := conn.Read(buf[:maxRead-total])
		if n == 0 && err != nil {
			return good, fmt.Errorf("read the response: %w", err)
		}
		total += n
		done, err := x.take(buf[:n])
		if done || err != nil {
			return x.found, err
		}
		if out := x.conn.Take(nil); len(out) > 0 {
			if _, err := conn.Write(out); err != nil {
				return good, err
			}
		}
	}
	return good, errTooLong
}

// stream is an exchange over HTTP/2.
type stream struct {
	check    *check
	conn     *http2.Conn
	response http2.Response
	trailers http2.TrailerFields
	message  []byte // of a gRPC response, with its prefix
	found    result
}

// begin puts the request into the output.
func (x *stream) begin(version string) {
	s := x.check.settings
	method, path := "GET", s.Path
	if s.Service != nil {
		method, path = "POST", "/grpc.health.v1.Health/Check"
	}
	id, _ := x.conn.Open(false)
	scheme := "https"
	if x.check.origin.Scheme == "h2c" {
		scheme = "http"
	}
	field := func(name, value string) { x.conn.FieldString(name, value, false) }
	field(":method", method)
	field(":scheme", scheme)
	field(":authority", x.check.host)
	field(":path", path)
	field("user-agent", agent(version))
	if s.Service != nil {
		field("content-type", "application/grpc")
		field("te", "trailers")
		field("grpc-timeout", strconv.FormatInt(max(1, s.Timeout.Milliseconds()), 10)+"m")
	}
	for _, h := range s.Headers {
		x.conn.FieldString(strings.ToLower(h.Name), h.Value, true)
	}
	x.conn.EndHead(s.Service == nil)
	if s.Service != nil {
		x.conn.Data(id, healthRequest(*s.Service), true)
	}
}

// take takes what was received. It reports whether the result is known.
func (x *stream) take(b []byte) (done bool, err error) {
	x.conn.Feed(0, b)
	for ev := (http2.Event{}); x.conn.Next(&ev); {
		switch ev.Kind {
		case http2.Head:
			done, err = x.takeHead(ev.End)
		case http2.Data:
			x.message = append(x.message, ev.Data...)
			x.conn.Consumed(ev.Stream, len(ev.Data))
			if ev.End { // without trailers
				return true, errNoGRPC
			}
		case http2.Trailers:
			if err := x.conn.ReadTrailers(&x.trailers); err != nil {
				return true, err
			}
			x.found = x.judge(fieldOf(x.trailers.Fields(), x.trailers.Text, "grpc-status"))
			return true, nil
		case http2.Reset:
			return true, &upstream.ResetError{Code: ev.Code, Local: ev.Local}
		case http2.GoAway:
			if ev.Last == 0 {
				return true, io.ErrUnexpectedEOF
			}
		case http2.Window, http2.SettingsChanged, http2.PingReply:
		}
		if done || err != nil {
			return done, err
		}
	}
	return false, x.conn.Err()
}

// errNoGRPC is the error of a response that is none of gRPC.
var errNoGRPC = fmt.Errorf("health: the response is not one of gRPC: %w", http1.ErrSyntax)

// takeHead takes the head of a response; ends says that it is all of it.
func (x *stream) takeHead(ends bool) (done bool, err error) {
	if err := x.conn.ReadResponse(&x.response); err != nil {
		return true, err
	}
	s := x.check.settings
	switch status := x.response.Status; {
	case status < 200: // an interim response
		return false, nil
	case s.Service == nil:
		if !s.IsGood(status) {
			x.found = statusResult(status)
		}
		return true, nil
	case status != 200:
		x.found = statusResult(status)
		return true, nil
	case !ends:
		return false, nil
	}
	x.found = x.judge(fieldOf(x.response.Fields(), x.response.Text, "grpc-status"))
	return true, nil
}

// judge returns the result of a gRPC response by its status and message.
func (x *stream) judge(status string) result {
	switch status {
	case "0":
		return servingResult(x.message)
	case "5":
		return "service_unknown"
	case "":
		return malformed
	}
	if n, err := strconv.Atoi(status); err != nil || n < 0 || n > 16 {
		return malformed
	}
	return result("grpc_status " + status)
}

// fieldOf returns the value of a field; "" if there is none.
func fieldOf(fields []http1.Field, text []byte, name string) string {
	for i := range fields {
		if strings.EqualFold(string(fields[i].Name.Of(text)), name) {
			return string(fields[i].Value.Of(text))
		}
	}
	return ""
}

// grpcPrefix is the length of the prefix of a message: a flag for compression, and the length.
const grpcPrefix = 5

// healthRequest returns the message HealthCheckRequest with its prefix: field 1 is the service.
func healthRequest(service string) []byte {
	message := binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(service)))
	if message = append(message, service...); service == "" {
		message = nil
	}
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	return append(b, message...)
}

// servingResult returns the result of a HealthCheckResponse with its prefix: field 1 is the status, of which 1 is SERVING.
func servingResult(message []byte) result {
	if len(message) < grpcPrefix || message[0] != 0 || binary.BigEndian.Uint32(message[1:]) != uint32(len(message)-grpcPrefix) {
		return malformed
	}
	status := uint64(0)
	for b := message[grpcPrefix:]; len(b) > 0; {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return malformed
		}
		value, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return malformed
		}
		b = b[n+m:]
		switch {
		case key == 1<<3:
			status = value
		case key&7 == 2 && value <= uint64(len(b)): // an unknown field with a length
			b = b[value:]
		case key&7 != 0:
			return malformed
		}
	}
	switch status {
	case 1:
		return good
	case 2:
		return "not_serving"
	case 3:
		return "service_unknown"
	}
	return "unknown"
}
