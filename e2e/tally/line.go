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

// patience bounds every wait for a server, so that a run ends.
const patience = 30 * time.Second

// line is one connection of HTTP/1.1, made again when it ends.
type line struct {
	address  string
	requests [][]byte
	conn     net.Conn
	reader   *bufio.Reader
}

func newLine(cfg Config) *line {
	l := &line{address: cfg.Address, requests: make([][]byte, len(cfg.Calls)), reader: bufio.NewReaderSize(nil, 16<<10)}
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

func (l *line) close() {
	if l.conn != nil {
		_ = l.conn.Close() // it is given up
		l.conn = nil
	}
}

// call makes a call. An error that is not errUnanswered is of an answer that
// broke off.
func (l *line) call(index int, c *Call) (status int, bytesOut int64, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.conn == nil {
		if l.conn, err = net.DialTimeout("tcp", l.address, patience); err != nil {
			return 0, 0, errUnanswered
		}
		l.reader.Reset(l.conn)
	}
	if err := l.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, 0, err
	}
	// A write that fails may still have been answered: the server refuses and
	// closes before it has read everything.
	_, _ = l.conn.Write(l.requests[index])
	if _, err := l.reader.Peek(1); err != nil {
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			return 0, 0, fmt.Errorf("no answer within %v", patience)
		}
		return 0, 0, errUnanswered
	}
	res, err := http.ReadResponse(l.reader, &http.Request{Method: c.Method})
	if err != nil {
		return 0, 0, fmt.Errorf("an answer broke off: %w", err)
	}
	defer res.Body.Close()
	if bytesOut, err = io.Copy(io.Discard, res.Body); err != nil {
		return 0, 0, fmt.Errorf("an answer broke off: %w", err)
	}
	if res.Close {
		l.close()
	}
	return res.StatusCode, bytesOut, nil
}
