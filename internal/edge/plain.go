package edge

import (
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/proxy"
)

// looksLikeHTTP reports whether first, the bytes received in place of a TLS record
// header, begins an HTTP request: a method of capital letters, possibly followed by
// a space and the start of a path.
func looksLikeHTTP(first [5]byte) bool {
	for i, b := range first {
		if (b < 'A' || b > 'Z') && (i < 3 || b != ' ' && b != '/') {
			return false
		}
	}
	return true
}

// rejectPlainHTTP responds with a 400 to a client that speaks plain HTTP to a TLS
// listener.
func (c *conn) rejectPlainHTTP() {
	request := id.New(id.Request)
	status, body := fault.Response(fault.New(fault.InvalidRequest, "this port speaks TLS: write https in the URL"), request)
	_ = c.SetDeadline(time.Now().Add(proxy.LingerTime))
	_, err := fmt.Fprintf(c.TCPConn, "HTTP/1.1 %d Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\nX-Request-Id: %s\r\n\r\n%s",
		status, len(body), request, body)
	if err == nil && c.CloseWrite() == nil {
		c.server.cfg.Linger.DiscardFrom(c.TCPConn)
	}
}
