//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/keygate/keygate/bench/keygate"
)

// perAddress is the number of connections from one client address, which gateways
// limit.
const perAddress = 3000

// runIdle measures how much memory idle connections add to a proxy. Each has made one
// request. A proxy with garbage collection collects before both measurements.
func runIdle(ctx context.Context, st *stage, p *peer) (*sample, error) {
	running, err := p.open(ctx, st, mode{collect: true})
	if err != nil {
		return nil, err
	}
	defer running.Stop()
	before, beforeHeap, err := memoryAtRest(ctx, running)
	if err != nil {
		return nil, err
	}
	idle := make([]net.Conn, 0, st.o.idle)
	defer func() {
		for _, c := range idle {
			_ = c.Close()
		}
	}()
	for i := range st.o.idle {
		c, err := connect(ctx, running, i/perAddress)
		if err != nil {
			return nil, fmt.Errorf("connection %d: %w", i+1, err)
		}
		idle = append(idle, c)
	}
	after, afterHeap, err := memoryAtRest(ctx, running)
	if err != nil {
		return nil, err
	}
	// A connection that the proxy had closed would use no memory.
	for i, c := range idle {
		if err := request(c, running); err != nil {
			return nil, fmt.Errorf("connection %d did not stay open: %w", i+1, err)
		}
	}
	found := &sample{memory: float64(after) / 1e6, live: math.NaN()}
	found[resident] = float64(after-before) / 1e6
	found[growth] = found[resident] - float64(afterHeap.Free-beforeHeap.Free)/1e6
	if running.collect != nil {
		found[live] = float64(afterHeap.Live+afterHeap.Stacks-beforeHeap.Live-beforeHeap.Stacks) / 1e6
	}
	return found, nil
}

// memoryAtRest returns a proxy's memory, after a garbage collection if it has one.
func memoryAtRest(ctx context.Context, p *proxy) (bytes int64, heap keygate.Heap, err error) {
	if p.collect != nil {
		if heap, err = p.collect(ctx); err != nil {
			return 0, heap, err
		}
	}
	bytes, err = p.Memory()
	return bytes, heap, err
}

// connect opens a connection from the loopback address 127.0.0.(from+1) and makes one
// request on it.
func connect(ctx context.Context, p *proxy, from int) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(from+1))}}
	c, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	if err := request(c, p); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func request(c net.Conn, p *proxy) error {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	text := "GET " + jsonPath + "1 HTTP/1.1\r\nHost: " + p.address + "\r\n"
	if p.key != "" {
		text += "Authorization: Bearer " + p.key + "\r\n"
	}
	if _, err := io.WriteString(c, text+"\r\n"); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}
