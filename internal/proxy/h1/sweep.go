package h1

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

// The bounds of waiting (contract, 4.4 and 4.5). They hold to within two ticks.
const (
	tickTime   = 200 * time.Millisecond
	headTime   = proxy.HeadTimeout
	idleTime   = proxy.IdleTimeout
	stallTime  = proxy.StallTimeout
	drainTime  = 2 * time.Second
	checkAfter = 400 * time.Millisecond // an exchange that lasts longer is looked after
	checkEvery = 2                      // ticks between two looks
	idleCheck  = 5                      // ticks of idling after which the end of a connection is looked for
)

// clock is the time since the engine was made, which goes on with each tick.
type clock struct {
	started time.Time
	ms      atomic.Int64
	date    atomic.Pointer[[]byte] // the value of the field Date
	second  int64                  // that date is of
}

// in returns the time that is d from now, never too early.
func (c *clock) in(d time.Duration) int64 {
	return c.ms.Load() + (d + tickTime).Milliseconds()
}

func (c *clock) tick(now time.Time) {
	c.ms.Store(max(1, now.Sub(c.started).Milliseconds()))
	if second := now.Unix(); second != c.second || c.date.Load() == nil {
		c.second = second
		date := now.UTC().AppendFormat(nil, http.TimeFormat)
		c.date.Store(&date)
	}
}

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

// sweepAll runs until ctx ends.
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
		e.clock.tick(e.cfg.Now())
		e.sweep(n%checkEvery == 0)
	}
}

// sweep ends what has taken too long. look tells whether clients that may have
// left are looked after this time.
func (e *Engine) sweep(look bool) {
	now, draining := e.clock.ms.Load(), e.draining.Load()
	e.conns.each(func(c *conn) { c.sweeper.inspect(c, now, look, draining) })
}

// sweeper is what the sweeper remembers of a connection. Nobody else touches it.
type sweeper struct {
	word    uint64 // the main phase at the last visit
	since   int64  // when it was first seen
	visits  int    // to an idle connection since then, up to finishCheck
	closed  bool   // at the last look
	moved   uint64 // bytes that the client has sent and acknowledged
	movedAt int64
}

func (s *sweeper) inspect(c *conn, now int64, look, draining bool) {
	word := c.phase.word.Load()
	if word&^held != s.word {
		s.word, s.since, s.visits, s.closed = word&^held, now, 0, false
	}
	switch phaseOf(word) {
	case phaseIdle:
		switch {
		case draining:
			c.cutReading(word, cutShutdown)
		case expired(word, now):
			c.cutReading(word, cutTimeout)
		case s.visits < idleCheck:
			// The end of a connection may have come together with the last
			// request, and then nothing else tells of it.
			if s.visits++; s.visits == idleCheck && c.control(isClosed) {
				c.cutReading(word, cutClientClosed)
			}
		}
	case phaseHead, phaseDrain:
		if expired(word, now) {
			c.cutReading(word, cutTimeout)
		}
	case phaseExchange:
		s.exchange(c, s.emitStarted(c, word, now), now, look)
	case phaseWait:
		s.exchange(c, word, now, look)
	case phaseStream:
		s.stream(c, s.emitStarted(c, word, now), now, look)
	case phaseBridge:
		s.stream(c, word, now, look)
	}
	if look {
		s.stalls(c, now)
	}
}

// emitStarted tells of a request that lasts, and returns what is in c.main since.
func (s *sweeper) emitStarted(c *conn, word uint64, now int64) uint64 {
	if word&held != 0 || c.client.Shard == nil || now-s.since < proxy.StartedAfter.Milliseconds() || !c.phase.hold(word) {
		return word
	}
	c.x.EmitStarted()
	c.phase.unhold()
	return word | held
}

// exchange looks after a request that waits for its answer.
func (s *sweeper) exchange(c *conn, word uint64, now int64, look bool) {
	uploading := c.uploading.Load()
	if uploading && look {
		s.progress(c, now)
	}
	switch {
	case expired(word, now) && (!uploading || now-s.movedAt >= c.uploadTimeout.Load()):
		c.cutExchange(word, cutTimeout)
	case !look || now-s.since < checkAfter.Milliseconds():
	case uploading:
		// Its own end may only mean that it has sent everything, though we
		// have not read it yet.
		if c.control(isReset) {
			c.cutExchange(word, cutClientClosed)
		}
	case c.control(isClosed):
		c.cutExchange(word, cutClientClosed)
	}
}

// stream looks after a client that gets an answer. One that has only ended its
// own direction still takes bytes.
func (s *sweeper) stream(c *conn, word uint64, now int64, look bool) {
	if !look || now-s.since < checkAfter.Milliseconds() {
		return
	}
	if c.uploading.Load() { // as in exchange
		if c.control(isReset) {
			c.cutExchange(word, cutClientClosed)
		}
		return
	}
	before := s.closed
	if s.closed = c.control(isClosed); s.closed {
		s.progress(c, now)
		if before && s.movedAt != now {
			c.cutExchange(word, cutClientClosed)
		}
	}
}

// progress notes whether bytes have moved between the client and us.
func (s *sweeper) progress(c *conn, now int64) (unread, unsent int) {
	var moved uint64
	c.control(func(fd uintptr) bool {
		moved, unread, unsent = traffic(fd)
		return true
	})
	if moved != s.moved || s.movedAt == 0 {
		s.moved, s.movedAt = moved, now
	}
	return unread, unsent
}

// stalls ends a client that sends or takes nothing while we wait for it.
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

// past is a deadline that ends whatever waits.
var past = time.Unix(1, 0) //nolint:gochecknoglobals // a constant, which Go has none of for times
