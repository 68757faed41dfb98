package h2

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/proxy"
)

// Timeouts (contract, 4.4 and 4.5). They are accurate to two ticks.
const (
	tickTime = proxy.Tick
	// A connection that is silent for pingAfter is pinged, and closed if the reply takes longer
	// than pingTimeout.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
	// drainTime is how long a client may take to read that it must open no more streams.
	drainTime = time.Second
	// closedCheck is how long a client must be silent before the gateway checks, once, whether it
	// has closed its sending side. The end of the connection may have arrived with the last bytes
	// and is not signalled again.
	closedCheck = 5 * tickTime
	// stallBytes is how much of a response a client must accept within proxy.StallTimeout.
	stallBytes = 1 << 10
	// restTime is how long an upload whose client sends nothing keeps its memory, and a client without
	// a stream its send.Affinity.
	restTime = time.Second
	// lingerStream is how long the rest of a refused request's body is discarded before its
	// stream is reset.
	lingerStream = 100 * time.Millisecond
)

// connTimes is what the sweeper knows of a connection, in the engine's milliseconds as of the
// last tick, so a tick is added to each period that must not be shorter. All but writing is
// used with conn.mu held.
type connTimes struct {
	writing   atomic.Int64 // since when a write has made no progress; 0 if there is none
	moved     uint64       // what the client had acknowledged while a write was in progress; only the sweeper uses it
	heard     int64        // when something was last received
	checked   int64        // value of heard at the last check whether the client has closed its side
	idle      int64        // since when there is no stream; 0 if there is one
	begun     uint64       // which head is incomplete
	head      int64        // since when a head is incomplete; 0 if none is
	pinged    int64        // when the PING that awaits its reply was sent; 0 if there is none
	draining  int64        // when the first GOAWAY of a drain was sent; 0 before
	announced bool         // the final GOAWAY was sent
}

func (t *connTimes) begin(now int64) { t.heard, t.idle, t.head = now, now, now }

func (t *connTimes) received(now int64) { t.heard, t.pinged = now, 0 }

// awaits notes whether a head is incomplete, and which.
func (t *connTimes) awaits(begun uint64, open bool, now int64) {
	switch {
	case !open:
		t.head = 0
	case t.head == 0 || t.begun != begun:
		t.head, t.begun = now, begun
	}
}

// ended notes that there are n streams.
func (t *connTimes) ended(n int, now int64) {
	if n == 0 {
		t.idle = now
	}
}

// pingReply ends the first part of a drain: the client has read the first GOAWAY.
func (t *connTimes) pingReply(c *conn) {
	if t.draining != 0 && !t.announced {
		t.announced = true
		c.proto.GoAway(http2.NoError)
	}
}

// sweepAll sweeps at each tick until ctx ends.
func (e *Engine) sweepAll(ctx context.Context) {
	ticks := time.NewTicker(tickTime)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-e.wake:
		}
		e.clock.Tick(e.cfg.Now())
		e.sweep()
	}
}

// sweep visits all connections.
func (e *Engine) sweep() {
	review := e.cfg.Admit.Review()
	e.each(func(c *conn) { c.sweep(&review) })
}

// sweep ends what has exceeded its time.
func (c *conn) sweep(review *admit.Review) {
	now := c.engine.clock.Now()
	over := func(since int64, d time.Duration) bool { return since != 0 && now-since >= (d+tickTime).Milliseconds() }
	if since := c.times.writing.Load(); since != 0 {
		if moved := proxy.Acknowledged(c.nc); moved != c.times.moved {
			c.times.moved = moved
			c.times.writing.CompareAndSwap(since, now)
		} else if over(since, proxy.StallTimeout) {
			c.end(cutClientClosed)
			return
		}
	}
	c.mu.Lock()
	if c.affinity.Broken() {
		c.affinity.Close()
		c.parting = true
	}
	for i := len(c.streams) - 1; i >= 0; i-- { // sweep may remove the stream
		c.streams[i].sweep(review, now)
	}
	t := &c.times
	if len(c.streams) == 0 && !c.flushing {
		c.shrink()
	}
	if over(t.idle, restTime) {
		c.affinity.Rest()
	}
	switch {
	case c.ended != notCut:
	case over(t.head, proxy.HeadTimeout), over(t.pinged, pingTimeout):
		c.endLocked(cutClientClosed)
	case c.mustDrain(), c.parting:
		c.drain(now)
	case c.pump != nil && t.checked != t.heard && over(t.heard, closedCheck):
		t.checked = t.heard
		if proxy.HasClosed(c.nc) {
			c.endSoon()
		}
	case over(t.idle, proxy.IdleTimeout):
		c.proto.GoAway(http2.NoError)
		c.endSoon()
	case t.pinged == 0 && over(t.heard, pingAfter) && t.head == 0:
		t.pinged = now
		c.proto.Ping([8]byte{'k', 'e', 'e', 'p'})
	}
	pending := c.proto.Pending() > 0
	c.mu.Unlock()
	if pending {
		c.engine.flushes.Go(c.flush)
	}
}

// mustDrain reports whether the client must be asked to open no more streams. A client that has not opened a
// stream yet is asked only once the shutdown has begun, because its first request may be on its way. c.mu is held.
func (c *conn) mustDrain() bool {
	d := &c.engine.drain
	return d.Begun() || d.Announced() && c.proto.Opened()
}

// drain ends the connection once its streams have ended: it sends GOAWAY for the last possible
// stream, and, when the client has read it, for the last stream that the client has opened. c.mu is
// held.
func (c *conn) drain(now int64) {
	t := &c.times
	switch {
	case t.draining == 0:
		t.draining = now
		c.proto.Drain()
		c.proto.Ping([8]byte{'d', 'r', 'a', 'i', 'n'})
	case !t.announced && now-t.draining >= drainTime.Milliseconds():
		t.announced = true
		c.proto.GoAway(http2.NoError)
	}
	if t.announced && len(c.streams) == 0 && c.proto.Pending() == 0 && !c.flushing {
		c.endSoon()
	}
}

// endSoon makes the reader stop, which closes the connection. c.mu is held.
func (c *conn) endSoon() { _ = c.nc.SetReadDeadline(past) }

// sweep ends what the stream has waited for too long. conn.mu is held.
func (s *stream) sweep(review *admit.Review, now int64) {
	c := s.conn
	stalled := func(since int64) bool { return since != 0 && now-since >= (proxy.StallTimeout+tickTime).Milliseconds() }
	if s.discard {
		if now >= s.lingerTill {
			s.free()
		}
		return
	}
	s.shrink(now)
	if s.why != notCut || s.finished {
		return
	}
	if s.since != 0 && now-s.since >= (proxy.StartedAfter+tickTime).Milliseconds() {
		s.EmitStarted()
		if s.wire != nil {
			s.attempt.Conn().Watch()
		}
	}
	if s.since != 0 {
		s.Passed(0, 0)
	}
	if s.calling {
		s.attempt.H2().Rest()
	}
	if result := s.review(review); result != accesslog.Forwarded {
		s.denied = result
		s.cut(cutAccess)
		return
	}
	switch {
	case stalled(s.readingAt), stalled(s.writing.since):
		s.cut(cutStalled)
	case s.deadline != 0 && now >= s.deadline && (!s.uploading || now-s.uploadedAt >= s.Verdict.Upstream.Timeout.Milliseconds()):
		s.cut(cutTimeout)
	case s.callUntil != 0 && now >= s.callUntil:
		s.cut(cutDeadline)
	case s.continueAt != 0 && now >= s.continueAt:
		s.continueAt, s.continued = 0, true
		if s.received == 0 && s.beginHead(http1.StatusContinue) {
			c.proto.EndHead(false)
		}
	}
}

// review returns accesslog.Forwarded unless the exchange runs for long and may not go on. conn.mu is
// held.
func (s *stream) review(r *admit.Review) accesslog.Result {
	if s.since == 0 || r.Now().Mono-s.BegunAt() < int64(proxy.ReviewAfter) { // not forwarded yet, or short
		return accesslog.Forwarded
	}
	if !s.attended {
		s.attended, s.admission = true, s.Verdict.Admission(s.Method)
	}
	if r.Ending() {
		s.admission.SetEnding(s.Ending())
	}
	if r.Unchanged(&s.admission) {
		return accesslog.Forwarded
	}
	return r.Cut(&s.admission)
}
