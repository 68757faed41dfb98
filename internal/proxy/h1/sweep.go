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
	tickTime    = 200 * time.Millisecond
	headTime    = proxy.HeadTimeout
	idleTime    = proxy.IdleTimeout
	stallTime   = proxy.StallTimeout
	drainTime   = 2 * time.Second
	leaveAfter  = 400 * time.Millisecond // an exchange that lasts longer is looked after
	leaveEvery  = 2                      // ticks between two looks
	finishCheck = 5                      // ticks of idling after which the end of a connection is looked for
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
	c.shard, c.place = s, len(s.conns)
	s.conns = append(s.conns, c)
	r.count.Add(1)
}

func (r *registry) remove(c *conn) {
	s := c.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.conns) - 1
	s.conns[c.place] = s.conns[last]
	s.conns[c.place].place = c.place
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
		case <-e.hurry:
		}
		e.clock.tick(e.cfg.Now())
		e.sweep(n%leaveEvery == 0)
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
	hungUp  bool   // at the last look
	moved   uint64 // bytes that the client has sent and acknowledged
	movedAt int64
}

func (s *sweeper) inspect(c *conn, now int64, look, draining bool) {
	word := c.main.word.Load()
	if word&^held != s.word {
		s.word, s.since, s.visits, s.hungUp = word&^held, now, 0, false
	}
	switch phaseOf(word) {
	case phaseIdle:
		switch {
		case draining:
			c.cutReading(word, cutDrain)
		case late(word, now):
			c.cutReading(word, cutLate)
		case s.visits < finishCheck:
			// The end of a connection may have come together with the last
			// request, and then nothing else tells of it.
			if s.visits++; s.visits == finishCheck && c.control(hungUp) {
				c.cutReading(word, cutGone)
			}
		}
	case phaseHead, phaseDrain:
		if late(word, now) {
			c.cutReading(word, cutLate)
		}
	case phaseExchange:
		s.exchange(c, s.tell(c, word, now), now, look)
	case phaseWait:
		s.exchange(c, word, now, look)
	case phaseStream:
		s.stream(c, s.tell(c, word, now), now, look)
	case phaseForeign:
		s.stream(c, word, now, look)
	}
	if look {
		s.stalls(c, now)
	}
}

// tell tells of a request that lasts, and returns what is in c.main since.
func (s *sweeper) tell(c *conn, word uint64, now int64) uint64 {
	if word&held != 0 || c.client.Shard == nil || now-s.since < proxy.StartedAfter.Milliseconds() || !c.main.hold(word) {
		return word
	}
	c.x.EmitStarted()
	c.main.letGo()
	return word | held
}

// exchange looks after a request that waits for its answer.
func (s *sweeper) exchange(c *conn, word uint64, now int64, look bool) {
	uploading := c.uploading.Load()
	if uploading && look {
		s.progress(c, now)
	}
	switch {
	case late(word, now) && (!uploading || now-s.movedAt >= c.patience.Load()):
		c.cutExchange(word, cutLate)
	case !look || now-s.since < leaveAfter.Milliseconds():
	case uploading:
		// Its own end may only mean that it has sent everything, though we
		// have not read it yet.
		if c.control(brokenOff) {
			c.cutExchange(word, cutGone)
		}
	case c.control(hungUp):
		c.cutExchange(word, cutGone)
	}
}

// stream looks after a client that gets an answer. One that has only ended its
// own direction still takes bytes.
func (s *sweeper) stream(c *conn, word uint64, now int64, look bool) {
	if !look || now-s.since < leaveAfter.Milliseconds() {
		return
	}
	if c.uploading.Load() { // as in exchange
		if c.control(brokenOff) {
			c.cutExchange(word, cutGone)
		}
		return
	}
	before := s.hungUp
	if s.hungUp = c.control(hungUp); s.hungUp {
		s.progress(c, now)
		if before && s.movedAt != now {
			c.cutExchange(word, cutGone)
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
	if phaseOf(reading) == phaseReading && late(reading, now) && unread == 0 && c.reading.end(reading, cutLate) {
		_ = c.nc.SetReadDeadline(past)
	}
	if phaseOf(writing) == phaseWriting && late(writing, now) && unsent > 0 && c.writing.end(writing, cutLate) {
		_ = c.nc.SetWriteDeadline(past)
	}
}

// past is a deadline that ends whatever waits.
var past = time.Unix(1, 0) //nolint:gochecknoglobals // a constant, which Go has none of for times
