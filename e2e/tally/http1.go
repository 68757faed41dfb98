package tally

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// callTimeout bounds each call, so that a run ends.
const callTimeout = 30 * time.Second

// http1Conn makes calls over one HTTP/1.1 connection. It reconnects when the
// connection has been closed.
type http1Conn struct {
	address  string
	requests [][]byte
	conn     net.Conn
	reader   *bufio.Reader
}

func newHTTP1Conn(cfg Config) *http1Conn {
	l := &http1Conn{address: cfg.Address, requests: make([][]byte, len(cfg.Calls)), reader: bufio.NewReaderSize(nil, 16<<10)}
	for i := range cfg.Calls {
		c := &cfg.Calls[i]
		var b bytes.Buffer
		fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", c.Method, c.Target, c.Host)
		if c.Key != "" {
			fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", c.Key)
		}
		if c.Body != nil {
			fmt.Fprintf(&b, "Content-Length: %d\r\n", len(c.Body))
		}
		b.WriteString("\r\n")
		b.Write(c.Body)
		l.requests[i] = b.Bytes()
	}
	return l
}

func (l *http1Conn) close() {
	if l.conn != nil {
		_ = l.conn.Close() // it is not used again
		l.conn = nil
	}
}

// call makes a call. If no byte of a response arrived, the error is errNoResponse;
// any other error means that the response broke off or timed out.
func (l *http1Conn) call(index int, c *Call) (status int, bytesOut int64, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.conn == nil {
		if l.conn, err = net.DialTimeout("tcp", l.address, callTimeout); err != nil {
			return 0, 0, errNoResponse
		}
		l.reader.Reset(l.conn)
	}
	if err := l.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return 0, 0, err
	}
	// Even if the write fails there may be a response: the server may refuse the
	// request and close the connection before it has read everything.
	_, _ = l.conn.Write(l.requests[index])
	if _, err := l.reader.Peek(1); err != nil {
		var netErr net.Error
		if errors.As(err, &netErr) && netErr.Timeout() {
			return 0, 0, fmt.Errorf("no response within %v", callTimeout)
		}
		return 0, 0, errNoResponse
	}
	res, err := http.ReadResponse(l.reader, &http.Request{Method: c.Method})
	if err != nil {
		return 0, 0, fmt.Errorf("a response broke off: %w", err)
	}
	defer res.Body.Close()
	if bytesOut, err = io.Copy(io.Discard, res.Body); err != nil {
		return 0, 0, fmt.Errorf("a response broke off: %w", err)
	}
	if res.Close {
		l.close()
	}
	return res.StatusCode, bytesOut, nil
}
