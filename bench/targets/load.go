//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/bench/stats"
)

// callTimeout is how long a client waits for a response. The timeout of a gateway is shorter.
const callTimeout = time.Minute

// load is what clients send: GET requests over connections that stay open.
type load struct {
	address  string
	hosts    []string // connections use them in turn
	key      string
	routes   int           // the requests go to as many routes in turn
	rate     float64       // requests a second; 0 sends each one when its connection has had a response
	duration time.Duration // how long requests are sent
}

// sample is a request of a load.
type sample struct {
	at   time.Duration // when it was due, from the start of the load
	took time.Duration // from then on to the end of its response
	ok   bool          // it had a whole response with status 200
}

// run sends the load. An error is the end of ctx: a connection that fails is a failed request, and is opened again.
func (l load) run(ctx context.Context) (samples, error) {
	var (
		sending sync.WaitGroup
		all     [connections][]sample
		start   = time.Now()
	)
	for i := range connections {
		sending.Go(func() {
			c := &caller{load: l, host: l.hosts[i%len(l.hosts)]}
			defer c.close()
			for n := i; ctx.Err() == nil; n += connections {
				at := time.Since(start)
				if l.rate > 0 {
					at = time.Duration(float64(n) / l.rate * float64(time.Second))
				}
				if at >= l.duration || wait(ctx, at-time.Since(start)) != nil {
					return
				}
				ok := c.call(ctx, n)
				all[i] = append(all[i], sample{at, time.Since(start) - at, ok})
			}
		})
	}
	sending.Wait()
	return slices.Concat(all[:]...), ctx.Err()
}

// samples are the requests of a load, in no order.
type samples []sample

// failed returns how many of the requests that were due from a time on failed, and how many there were.
func (s samples) failed(from time.Duration) (n, all int) {
	for _, v := range s {
		if v.at < from {
			continue
		}
		if all++; !v.ok {
			n++
		}
	}
	return n, all
}

// quantile returns the q-quantile of what the requests took.
func (s samples) quantile(q float64) time.Duration {
	var took []time.Duration
	for _, v := range s {
		took = append(took, v.took)
	}
	return stats.Quantile(q, took...)
}

// caller is a client with one connection.
type caller struct {
	load
	host string
	conn net.Conn // nil if it is to be opened
	in   *bufio.Reader
}

// call sends request n and reports whether it had a whole response with status 200. A connection that fails is closed.
func (c *caller) call(ctx context.Context, n int) (ok bool) {
	status, err := c.exchange(ctx, n)
	if err != nil {
		c.close()
	}
	return err == nil && status == http.StatusOK
}

// exchange sends request n, reads its response and returns its status.
func (c *caller) exchange(ctx context.Context, n int) (status int, err error) {
	if c.conn == nil {
		if c.conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", c.address); err != nil {
			return 0, err
		}
		c.in = bufio.NewReader(c.conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path(n%c.routes), c.host, c.key)
	if err != nil {
		return 0, err
	}
	res, err := http.ReadResponse(c.in, nil)
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

func (c *caller) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// path returns the path of a route.
func path(route int) string { return fmt.Sprintf("/things%d", route) }
