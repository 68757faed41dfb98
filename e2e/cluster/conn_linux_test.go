package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// conn sends requests to the data plane of a node over one connection, each exactly once, whereas
// net/http might repeat some.
type conn struct {
	node      *node
	from      string // the client's address; "" for any
	conn      net.Conn
	reader    *bufio.Reader
	used      bool  // a request was sent over the present connection before
	disturbed int64 // node.disturbed when the connection was made
}

// callTimeout is longer than any node is stopped.
const callTimeout = time.Minute

// errExcused means that a request has no response because the test stopped or killed the process of
// the node, or because an idle connection was closed.
var errExcused = errors.New("no response")

// get sends GET path with a key and returns the status of the response.
func (c *conn) get(path, key string) (status int, err error) {
	if c.conn == nil {
		c.used, c.disturbed = false, c.node.disturbed.Load()
		dialer := net.Dialer{Timeout: callTimeout}
		if c.from != "" {
			dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(c.from)}
		}
		if c.conn, err = dialer.Dial("tcp", c.node.gateway); err != nil {
			c.conn = nil
			return 0, c.judge(err)
		}
		c.reader = bufio.NewReader(c.conn)
	}
	status, err = c.exchange(path, key)
	if err != nil {
		err = c.judge(err)
		c.close()
	}
	c.used = true
	return status, err
}

func (c *conn) exchange(path, key string) (status int, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, key); err != nil {
		return 0, err
	}
	res, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0, err
	}
	if res.Close {
		c.close()
	}
	return res.StatusCode, nil
}

// judge returns an error, which is errExcused if err may have another cause than a defect of the node.
func (c *conn) judge(err error) error {
	timeout, isNet := errors.AsType[net.Error](err)
	if c.disturbed%2 == 1 || c.disturbed != c.node.disturbed.Load() || c.used && !(isNet && timeout.Timeout()) {
		return errExcused
	}
	return err
}

func (c *conn) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
