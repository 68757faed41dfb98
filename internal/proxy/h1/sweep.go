package h1

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/proxy"
)

// Timeouts (contract, 4.4 and 4.5). They are accurate to two ticks.
const (
	tickTime   = proxy.Tick
	headTime   = proxy.HeadTimeout
	idleTime   = proxy.IdleTimeout
	stallTime  = proxy.StallTimeout
	checkAfter = 400 * time.Millisecond // how long an exchange runs before its client is checked
	checkEvery = 2                      // ticks between two checks of a client
	idleCheck  = 5                      // ticks after which an idle client rests and is checked, once
)

// registry holds the connections of an engine.
type registry struct {
	shards [64]registryShard
	next   atomic.Uint32
	count  atomic.Int64
}

type registryShard struct {
	mu    sync.Mutex
	conns []*conn
}

func (r *registry) add(c *conn) {
	s := &r.shards[r.next.Add(1)%uint32(len(r.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	c.shard, c.index = s, len(s.conns)
	s.conns = append(s.conns, c)
	r.count.Add(1)
}

func (r *registry) remove(c *conn) {
	s := c.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.conns) - 1
	s.conns[c.index] = s.conns[last]
	s.conns[c.index].index = c.index
	s.conns[last] = nil
	s.conns = s.conns[:last]
	r.count.Add(-1)
}

func (r *registry) each(f func(*conn)) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for _, c := range s.conns {
			f(c)
		}
		s.mu.Unlock()
	}
}

// sweepAll sweeps at each tick until ctx ends.
func (e *Engine) sweepAll(ctx context.Context) {
	ticks := time.NewTicker(tickTime)
	defer ticks.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-e.wake:
		}
		e.clock.Tick(e.cfg.Now())
		e.sweep(n%checkEvery == 0)
	}
}

// sweep ends phases that have exceeded their deadline. check is set if it must also check
// for clients that have hung up.
func (e *Engine) sweep(check bool) {
	now, draining := e.clock.Now(), e.drain.Begun()
	review := e.cfg.Admit.Review()
	e.conns.each(func(c *conn) { c.sweeper.inspect(c, &review, now, check, draining) })
}

// sweeper is the sweeper's state for one connection. Only the sweeper uses it.
type sweeper struct {
	word    uint64 // conn.phase at the last visit
	since   int64  // when word was first seen
	visits  int    // to an idle connection since then, up to idleCheck
	closed  bool   // the client had closed its sending side at the last check
	moved   uint64 // bytes that the client has sent and acknowledged
	movedAt int64

	admission *admit.Admission // of the exchange whose phase is marked as held
	begun     int64            // when it was decided, by the clock of the review
	metered   bool             // its charge depends on the bytes that pass
}

func (s *sweeper) inspect(c *conn, review *admit.Review, now int64, check, draining bool) {
	word := c.phase.word.Load()
	if word&^held != s.word {
		s.word, s.since, s.visits, s.closed = word&^held, now, 0, false
	}
	switch phaseOf(word) {
	case phaseNew, phaseIdle:
		switch {
		// The first request may be on its way. For a further request the client cannot rely on the connection.
		case draining && (phaseOf(word) == phaseIdle || now-s.since >= proxy.FirstRequestGrace.Milliseconds()):
			c.cutReading(word, cutShutdown)
		case expired(word, now):
			c.cutReading(word, cutTimeout)
		case check && c.affinity.Broken():
			c.cutReading(word, cutClientClosed)
		case s.visits < idleCheck:
			// The end of the connection may have arrived with the last request, and is not
			// signalled again.
			if s.visits++; s.visits == idleCheck {
				c.affinity.Rest()
				if c.control(proxy.IsClosed) {
					c.cutReading(word, cutClientClosed)
				}
			}
		}
	case phaseHead, phaseDrain:
		if expired(word, now) {
			c.cutReading(word, cutTimeout)
		}
	case phaseExchange:
		s.exchange(c, s.attend(c, review, word, now), now, check)
	case phaseWait:
		s.exchange(c, word, now, check)
	case phaseStream:
		c.restCall()
		s.stream(c, s.attend(c, review, word, now), now, check)
	case phaseTunnel:
		s.tunnel(c, review, word)
	}
	if check {
		s.stalls(c, now)
	}
}

// attend emits the start record of a long request, and from then on ends the request if it may not
// go on. It returns the word that c.phase has afterwards, unless the phase was ended.
func (s *sweeper) attend(c *conn, review *admit.Review, word uint64, now int64) uint64 {
	if cut(word>>8) != notCut {
		return word
	}
	if word&held == 0 || s.admission == nil {
		if now-s.since < proxy.StartedAfter.Milliseconds() || !c.phase.hold(word) {
			return word
		}
		c.x.EmitStarted()
		if s.admission == nil {
			s.admission = new(admit.Admission)
		}
		*s.admission, s.begun, s.metered = c.x.Verdict.Admission(c.x.Method), c.x.BegunAt(), c.x.IsMetered()
		c.phase.unhold()
		return word | held
	}
	// The mark says that the exchange is the one of s.admission.
	if s.metered && c.phase.hold(word) {
		c.x.Passed(0, 0)
		c.phase.unhold()
	}
	if review.Ending() && c.phase.hold(word) {
		s.admission.SetEnding(c.x.Ending())
		c.phase.unhold()
	}
	if review.Unchanged(s.admission) || review.Now().Mono-s.begun < int64(proxy.ReviewAfter) || !c.phase.hold(word) {
		return word
	}
	if result := review.Cut(s.admission); result != accesslog.Forwarded {
		c.deny(word, result)
	}
	c.phase.unhold()
	return word
}

// tunnel charges what has passed of a tunnel, and ends one that may not go on.
func (s *sweeper) tunnel(c *conn, review *admit.Review, word uint64) {
	if d := c.detached.Load(); d != nil {
		d.Settle()
	}
	switch {
	case cut(word>>8) == cutAccess:
		_ = c.nc.SetDeadline(past)
		return
	case review.Unchanged(c.tunneled):
		return
	}
	if result := review.Cut(c.tunneled); result != accesslog.Forwarded {
		c.deny(word, result)
	}
}

// exchange checks a request that waits for its response.
func (s *sweeper) exchange(c *conn, word uint64, now int64, check bool) {
	uploading := c.uploading.Load()
	if now > s.since {
		if up := c.upstream.Load(); up != nil {
			up.Watch()
		}
	}
	if uploading && check {
		s.progress(c, now)
	}
	switch {
	case expired(word, now) && (!uploading || now-s.movedAt >= c.uploadTimeout.Load()):
		c.cutExchange(word, cutTimeout)
	case !check || now-s.since < checkAfter.Milliseconds():
	case uploading:
		// A client that has sent its whole body may have closed its sending side before
		// the body was read.
		if c.control(proxy.IsReset) {
			c.cutExchange(word, cutClientClosed)
		}
	case c.control(proxy.IsClosed):
		c.cutExchange(word, cutClientClosed)
	}
}

// stream checks a client that receives a response. A client that has closed only its
// sending side still accepts bytes.
func (s *sweeper) stream(c *conn, word uint64, now int64, check bool) {
	if !check || now-s.since < checkAfter.Milliseconds() {
		return
	}
	if c.uploading.Load() { // as in exchange
		if c.control(proxy.IsReset) {
			c.cutExchange(word, cutClientClosed)
		}
		return
	}
	before := s.closed
	if s.closed = c.control(proxy.IsClosed); s.closed {
		s.progress(c, now)
		if before && s.movedAt != now {
			c.cutExchange(word, cutClientClosed)
		}
	}
}

// progress records whether bytes have moved between the client and the gateway.
func (s *sweeper) progress(c *conn, now int64) (unread, unsent int) {
	var moved uint64
	c.control(func(fd uintptr) bool {
		moved, unread, unsent = proxy.Traffic(fd)
		return true
	})
	if moved != s.moved || s.movedAt == 0 {
		s.moved, s.movedAt = moved, now
	}
	return unread, unsent
}

// stalls ends the exchange of a client that neither sends nor accepts bytes while the
// gateway waits for it.
func (s *sweeper) stalls(c *conn, now int64) {
	reading, writing := c.reading.word.Load(), c.writing.word.Load()
	waits := phaseOf(reading) == phaseReading || phaseOf(writing) == phaseWriting
	if !waits {
		return
	}
	unread, unsent := s.progress(c, now)
	if now-s.movedAt < stallTime.Milliseconds() {
		return
	}
	if phaseOf(reading) == phaseReading && expired(reading, now) && unread == 0 && c.reading.end(reading, cutTimeout) {
		_ = c.nc.SetReadDeadline(past)
	}
	if phaseOf(writing) == phaseWriting && expired(writing, now) && unsent > 0 && c.writing.end(writing, cutTimeout) {
		_ = c.nc.SetWriteDeadline(past)
	}
}

// past is a deadline in the past, which ends every pending call.
var past = time.Unix(1, 0) //nolint:gochecknoglobals // a constant; Go has none of this type
