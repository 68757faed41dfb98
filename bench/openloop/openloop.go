//go:build linux

// Package openloop sends HTTP/1.1 requests at a fixed rate, whatever the
// answers take, and tells how long each took from the moment at which it was
// due. A server that stalls is thus seen with all the requests that a stall
// would have met, which a client that waits for each answer does not make.
//
// One thread serves all connections by epoll and a timer of the kernel, so it
// takes little from the server beside it and is late by microseconds alone.
// It is for Linux.
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

// Config is what is sent.
type Config struct {
	Address     netip.AddrPort
	Request     []byte        // one whole request, on connections that are kept
	Connections int           // that answers are waited for on at the same time
	Rate        float64       // requests a second
	Duration    time.Duration // of sending
}

// Result is what came of it.
type Result struct {
	Latencies []time.Duration // of the answers, in the order in which they came
	Failures  int             // answers of another status than 200, and requests that got none
	Elapsed   time.Duration   // from the first request's time to the last answer
}

// grace is how long the last answers are waited for.
const grace = 10 * time.Second

// Run sends. It fails if a connection does; answers that do not come, or are
// not 200, are counted.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if cfg.Connections < 1 || cfg.Rate <= 0 || cfg.Duration <= 0 || !cfg.Address.Addr().Is4() {
		return nil, errors.New("openloop: an address of IPv4, connections, a rate and a duration are required")
	}
	// The wait for the next request and for answers is the thread's own.
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
	conns  []*conn    // by their place
	idle   chan *conn // a queue: every connection has its turn
	total  int        // requests to send
	sent   int
	begun  time.Time
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
		return nil, fmt.Errorf("make an epoll: %w", err)
	}
	if g.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	if err := g.watch(g.timer, -1, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return nil, err
	}
	for place := range cfg.Connections {
		c, err := dial(cfg.Address)
		if err != nil {
			return nil, err
		}
		g.conns = append(g.conns, c)
		g.idle <- c
		if err := g.watch(c.fd, place, unix.EPOLLIN); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// watch tells epoll to report what happens to fd, by place.
func (g *generator) watch(fd, place int, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: int32(place)}
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("watch a descriptor: %w", err)
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
	return g.begun.Add(time.Duration(float64(n) / g.cfg.Rate * float64(time.Second)))
}

func (g *generator) run(ctx context.Context) error {
	g.begun = time.Now()
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
		n, err := unix.EpollWait(g.epoll, events, 100) // milliseconds: ctx and deadline are looked at again
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for answers: %w", err)
		}
		for _, e := range events[:max(0, n)] {
			if err := g.take(int(e.Fd)); err != nil {
				return err
			}
		}
	}
	g.result.Elapsed = time.Since(g.begun)
	return nil
}

// send sends what is due, as far as there are idle connections, and sets the
// timer for what comes next.
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

// take receives what came at place.
func (g *generator) take(place int) error {
	if place < 0 {
		return nil // the timer: something is due
	}
	c := g.conns[place]
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
