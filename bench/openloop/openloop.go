//go:build linux

// Package openloop is an open-loop load generator: it sends HTTP/1.1 requests at a
// fixed rate, however long the responses take, and measures each latency from the
// time at which the request was due. So a stall of the server counts for every request
// that was due during the stall. A client that waits for each response before the next
// request (closed loop) would not even send those requests.
//
// One thread serves all connections with epoll and a kernel timer. It uses little CPU,
// and requests are late by microseconds only. The package works on Linux only.
package openloop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Config describes a load.
type Config struct {
	Address     netip.AddrPort
	Request     []byte        // one complete request, sent on persistent connections
	Connections int           // maximum number of outstanding requests
	Rate        float64       // requests a second
	Duration    time.Duration // how long to send
}

// Result is what a run measured.
type Result struct {
	Latencies []time.Duration // of the responses with status 200, in the order of their arrival
	Failures  int             // responses with another status, and requests without a response
	Elapsed   time.Duration   // from the first request to the last response
}

// grace is how long Run waits for the last responses.
const grace = 10 * time.Second

// Run sends the load. It returns an error if a connection fails. Missing responses, and responses
// with a status other than 200, are counted as failures.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if cfg.Connections < 1 || cfg.Rate <= 0 || cfg.Duration <= 0 || !cfg.Address.Addr().Is4() {
		return nil, errors.New("openloop: an IPv4 address, connections, a rate and a duration are required")
	}
	// The thread blocks in epoll while it waits for the next request and for responses.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g, err := newGenerator(cfg)
	if err != nil {
		return nil, err
	}
	defer g.close()
	if err := g.run(ctx); err != nil {
		return nil, err
	}
	return &g.result, nil
}

type generator struct {
	cfg    Config
	epoll  int
	timer  int
	conns  []*conn    // by index
	idle   chan *conn // FIFO queue, so that all connections are used equally
	total  int        // requests to send
	sent   int
	start  time.Time
	result Result
}

func newGenerator(cfg Config) (_ *generator, err error) {
	g := &generator{cfg: cfg, epoll: -1, timer: -1, total: max(1, int(cfg.Rate*cfg.Duration.Seconds()))}
	g.idle = make(chan *conn, cfg.Connections)
	g.result.Latencies = make([]time.Duration, 0, g.total)
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if g.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("create an epoll instance: %w", err)
	}
	if g.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	if err := g.register(g.timer, -1, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return nil, err
	}
	for index := range cfg.Connections {
		c, err := dial(cfg.Address)
		if err != nil {
			return nil, err
		}
		g.conns = append(g.conns, c)
		g.idle <- c
		if err := g.register(c.fd, index, unix.EPOLLIN); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// register makes epoll report events on fd with the given index.
func (g *generator) register(fd, index int, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: int32(index)}
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("register a descriptor with epoll: %w", err)
	}
	return nil
}

func (g *generator) close() {
	for _, c := range g.conns {
		_ = unix.Close(c.fd)
	}
	for _, fd := range []int{g.timer, g.epoll} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// due returns when request n is to be sent.
func (g *generator) due(n int) time.Time {
	return g.start.Add(time.Duration(float64(n) / g.cfg.Rate * float64(time.Second)))
}

func (g *generator) run(ctx context.Context) error {
	g.start = time.Now()
	deadline := g.due(g.total).Add(grace)
	events := make([]unix.EpollEvent, 128)
	for g.sent < g.total || len(g.idle) < len(g.conns) {
		now := time.Now()
		if now.After(deadline) {
			g.result.Failures += g.total - g.sent + len(g.conns) - len(g.idle)
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := g.send(now); err != nil {
			return err
		}
		n, err := unix.EpollWait(g.epoll, events, 100) // in milliseconds, so that ctx and deadline are checked regularly
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for responses: %w", err)
		}
		for _, e := range events[:max(0, n)] {
			if err := g.take(int(e.Fd)); err != nil {
				return err
			}
		}
	}
	g.result.Elapsed = time.Since(g.start)
	return nil
}

// send sends the requests that are due, as long as there are idle connections, and sets
// the timer for the next one.
func (g *generator) send(now time.Time) error {
	for g.sent < g.total && len(g.idle) > 0 {
		due := g.due(g.sent)
		if wait := due.Sub(now); wait > 0 {
			at := unix.ItimerSpec{Value: unix.NsecToTimespec(wait.Nanoseconds())}
			if err := unix.TimerfdSettime(g.timer, 0, &at, nil); err != nil {
				return fmt.Errorf("set the timer: %w", err)
			}
			return nil
		}
		c := <-g.idle
		if err := c.send(g.cfg.Request, due); err != nil {
			return err
		}
		g.sent++
	}
	return nil
}

// take reads from the connection with the given index.
func (g *generator) take(index int) error {
	if index < 0 {
		return nil // the timer: a request is due
	}
	c := g.conns[index]
	done, ok, err := c.receive()
	if err != nil || !done {
		return err
	}
	if ok {
		g.result.Latencies = append(g.result.Latencies, time.Since(c.due))
	} else {
		g.result.Failures++
	}
	g.idle <- c
	return nil
}
