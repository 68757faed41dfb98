package edge

import (
	"fmt"
	"io"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// What a client that is refused outside of HTTP may still send, so that a reset
// does not overtake the answer.
const (
	lingerTime  = time.Second
	lingerBytes = 64 << 10
)

// looksLikeHTTP reports whether the first bytes of what should be TLS begin a
// request: a method in capitals, perhaps with what follows it.
func looksLikeHTTP(first [5]byte) bool {
	for i, b := range first {
		if (b < 'A' || b > 'Z') && (i < 3 || b != ' ' && b != '/') {
			return false
		}
	}
	return true
}

// answerPlain answers a client that speaks HTTP to a listener of TLS.
func (c *conn) answerPlain() {
	request := id.New(id.Request)
	status, body := fault.Response(fault.New(fault.InvalidRequest, "this port speaks TLS: write https in the URL"), request)
	_ = c.SetDeadline(time.Now().Add(lingerTime))
	_, err := fmt.Fprintf(c.TCPConn, "HTTP/1.1 %d Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\nX-Request-Id: %s\r\n\r\n%s",
		status, len(body), request, body)
	if err == nil && c.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.TCPConn, lingerBytes)
	}
}
