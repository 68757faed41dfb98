package upstream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/http1"
)

// Reply is the response to a request that Start has sent.
type Reply struct {
	*http.Response
	body func() (string, error)
}

// Whole returns the body and ends the exchange.
func (r *Reply) Whole() (string, error) { return r.body() }

// Start sends a request over the pools of an origin as the engines do, and returns when the head of
// the response has arrived.
func Start(ctx context.Context, pools *Pools, o Origin, req *http.Request, timeout time.Duration) (*Reply, error) {
	deadline := time.Now().Add(timeout)
	upgrade := req.Header.Get("Upgrade") != ""
	body := []byte(nil)
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
	}
	if o.Scheme == "http" {
		pool, err := pools.Plain(o)
		if err != nil {
			return nil, err
		}
		return startOver(ctx, pool, req, body, deadline)
	}
	pool, err := pools.Multiplexed(o)
	if err != nil {
		return nil, err
	}
	if !upgrade {
		reply, err := startCall(ctx, pool, req, body, deadline)
		if !errors.Is(err, ErrNoHTTP2) {
			return reply, err
		}
	}
	return startOver(ctx, pool.HTTP1(), req, body, deadline)
}

// startCall is Start over HTTP/2.
func startCall(ctx context.Context, pool *H2Pool, req *http.Request, body []byte, deadline time.Time) (*Reply, error) {
	for again := true; ; again = false {
		c := newCall(req.Method, cmp.Or(req.URL.Opaque, req.URL.RequestURI()))
		if err := pool.Open(ctx, deadline, &c.H2Stream, H2Request{Exchange: c, Head: req.Method == "HEAD", Body: body, End: true}); err != nil {
			return nil, err
		}
		if err := c.Send(ctx, body[c.First():], true); err != nil && ctx.Err() != nil {
			c.Close()
			return nil, err
		}
		timeout := time.NewTimer(time.Until(deadline))
		select {
		case <-c.headIn:
		case <-c.over:
		case <-ctx.Done():
			c.Close()
			return nil, ctx.Err()
		case <-timeout.C:
			c.Close()
			return nil, TimedOut(At(c.Address(), errHeadTimeout))
		}
		timeout.Stop()
		c.mu.Lock()
		err, safe := c.err, c.safe
		c.mu.Unlock()
		if err != nil && safe && again {
			continue
		}
		if err != nil {
			return nil, Unreachable(At(c.Address(), err))
		}
		return &Reply{&http.Response{StatusCode: c.status, ProtoMajor: 2}, func() (string, error) {
			<-c.over
			c.Close()
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.body.String(), c.err
		}}, nil
	}
}

// pumped reads an H1Conn as an engine does.
type pumped struct{ *H1Conn }

// Read implements io.Reader.
func (p pumped) Read(b []byte) (n int, err error) {
	failed := p.Raw().Read(func(fd uintptr) bool {
		n, err = p.Receive(fd, b)
		return n > 0 || err != nil
	})
	return n, cmp.Or(err, failed)
}

// startOver is Start over HTTP/1.1.
func startOver(ctx context.Context, pool *H1Pool, req *http.Request, body []byte, deadline time.Time) (*Reply, error) {
	c, err := pool.Acquire(ctx, deadline, nil)
	for {
		if err != nil {
			return nil, err
		}
		reused := c.Reused()
		reply, err := exchangeOver(ctx, c, req, body, deadline)
		if err == nil {
			return reply, nil
		}
		c.Discard()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !time.Now().Before(deadline):
			return nil, TimedOut(At(c.Address(), errHeadTimeout))
		case !reused || len(body) > 0:
			return nil, Unreachable(At(c.Address(), err))
		}
		c, err = pool.Connect(ctx, deadline)
		if err != nil {
			return nil, err
		}
	}
}

func exchangeOver(ctx context.Context, c *H1Conn, req *http.Request, body []byte, deadline time.Time) (*Reply, error) {
	_ = c.conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	var out bytes.Buffer
	out.WriteString(req.Method + " " + cmp.Or(req.URL.Opaque, req.URL.RequestURI()) + " HTTP/1.1\r\nHost: " + req.Host + "\r\n")
	_ = req.Header.Write(&out)
	if len(body) > 0 {
		out.WriteString("Content-Length: " + strconv.Itoa(len(body)) + "\r\n")
	}
	out.WriteString("\r\n")
	out.Write(body)
	if _, err := c.Write(out.Bytes()); err != nil {
		return nil, err
	}
	from := bufio.NewReader(pumped{c})
	resp, err := http.ReadResponse(from, &http.Request{Method: req.Method})
	if err != nil {
		if strings.Contains(err.Error(), "malformed") {
			err = http1.ErrSyntax
		}
		return nil, err
	}
	return &Reply{resp, func() (string, error) {
		if resp.StatusCode == http.StatusSwitchingProtocols {
			stop()
			c.Discard()
			return "", nil
		}
		text, err := io.ReadAll(resp.Body)
		if !stop() || err != nil || resp.Close || from.Buffered() > 0 || c.conn.SetDeadline(time.Time{}) != nil {
			c.Discard()
		} else {
			c.Release()
		}
		return string(text), err
	}}, nil
}
