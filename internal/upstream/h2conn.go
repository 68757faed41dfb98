package upstream

import (
	"cmp"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/nowait"
)

// h2ReadSize is the size of the buffer that a connection is read into.
const h2ReadSize = 32 << 10

// maxH2Streams is how many streams a connection opens in its life, well below the highest
// identifier.
const maxH2Streams = http2.MaxStreamID / 4

// errConnUnneeded is the result of a connection that was closed because it had no exchange.
var errConnUnneeded = errors.New("upstream: the connection is not needed")

// ResetError is the cause of an exchange that ended with RST_STREAM.
type ResetError struct {
	Code  http2.Code
	Local bool // this process has reset the stream, for an error of the server
}

// Error implements error.
func (e *ResetError) Error() string {
	if e.Local {
		return "upstream: the server violated HTTP/2: " + e.Code.String()
	}
	return "upstream: the server reset the stream: " + e.Code.String()
}

// h2Conn is a connection of an H2Pool. One goroutine, the reader, is parked in the
// socket for as long as the connection lives, so that whatever arrives is seen at once, and
// calls the exchanges. Senders append to the output, see flush.
type h2Conn struct {
	pool *H2Pool
	slot *H1Conn
	tls  *tls.Conn // nil for h2c
	seal *sealer   // below tls

	load, capacity atomic.Int32 // streams, and how many there may be; capacity may be higher in fact

	ready chan struct{} // closed when the server's settings have arrived
	over  chan struct{} // closed when the connection is closed; err is final then

	// Of the reader.
	buf      []byte
	event    http2.Event
	response http2.Response
	trailers http2.TrailerFields
	flushers []Flusher // called when everything that was received is passed on

	mu         sync.Mutex
	http       *http2.Conn
	first      *H2Stream // a list in no order
	dead       bool      // nothing may be sent or received
	err        error     // why
	retired    bool      // takes no new streams
	known      bool      // ready is closed
	opened     int       // streams so far
	heard      int64     // tick of the last bytes received, or of the first stream since it was idle
	pinged     int64     // tick of the PING that nothing has followed, or 0
	backoff    bool      // ping rarely: since the last PING, no part of a response has arrived
	idleSince  int64     // tick
	stuck      stuck
	delivering *H2Stream   // the stream whose callback runs on the reader
	news       []*H2Stream // the streams for which something has arrived since the last Settle
	output
}

func newH2Conn(p *H2Pool, slot *H1Conn) *h2Conn {
	now := p.owner.tick.Load()
	c := &h2Conn{
		pool: p, slot: slot, http: http2.NewConn(http2.Config{Role: http2.Client}), buf: make([]byte, h2ReadSize),
		ready: make(chan struct{}), over: make(chan struct{}), heard: now, idleSince: now,
	}
	c.output.init(c)
	return c
}

// open opens a stream as s, unless the connection has no room. The caller flushes.
func (c *h2Conn) open(s *H2Stream, r *H2Request) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead || c.retired || c.broken || !c.http.CanOpen() || c.http.Pending() >= maxOutput || c.slot.old() {
		c.capacity.Store(c.load.Load()) // until the next update
		c.full = c.full || c.http.Pending() >= maxOutput
		return false, nil
	}
	if r.Connect && !c.http.PeerConnects() {
		return false, ErrNoConnect
	}
	if r.Confirm != nil {
		if err := r.Confirm.Confirm(); err != nil {
			return false, err
		}
	}
	if c.http.Streams() == 0 {
		c.heard = c.pool.owner.tick.Load()
	}
	*s = H2Stream{conn: c, ex: r.Exchange, at: c.taken + int64(c.http.Pending()), open: true, more: s.more}
	s.id, _ = c.http.Open(r.Head)
	r.Exchange.WriteHead(c.http)
	c.http.EndHead(r.End && len(r.Body) == 0)
	if len(r.Body) > 0 {
		first := r.Body[:min(len(r.Body), http2.MaxFrame)]
		s.first, _ = c.http.Data(s.id, first, r.End && len(first) == len(r.Body))
	}
	c.http.SetOwner(s.id, s)
	if s.next = c.first; s.next != nil {
		s.next.prev = s
	}
	c.first = s
	if c.opened++; c.opened >= maxH2Streams {
		c.retired = true
	}
	c.update()
	return true, nil
}

// remove ends the exchange of a stream. c.mu is held.
func (c *h2Conn) remove(s *H2Stream) {
	s.open = false
	c.http.Done(s.id)
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		c.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
	c.wakeGone(s)
	c.forget(s)
	if c.first == nil {
		c.idleSince = c.pool.owner.tick.Load()
		if !c.flushing && !c.pending() {
			c.shrink()
		}
	}
	c.update()
}

// spent reports whether the connection takes no new streams any more.
func (c *h2Conn) spent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead || c.retired || c.broken || c.slot.old()
}

// update publishes how many streams there are and may be. c.mu is held.
func (c *h2Conn) update() {
	capacity := c.http.Capacity()
	if c.dead || c.retired || c.broken || c.http.Pending() >= maxOutput {
		capacity = 0
	}
	c.capacity.Store(int32(capacity))
	c.load.Store(int32(c.http.Streams()))
}

// ended is called without a lock when a stream has ended: waiting requests may take its slot.
func (c *h2Conn) ended() {
	if c.pool.waiting() {
		c.pool.serve()
	}
	if c.load.Load() > 0 {
		return
	}
	c.mu.Lock()
	retired := c.retired
	c.mu.Unlock()
	if retired || c.pool.unwanted(c) {
		c.shut(errConnUnneeded, false)
	}
}

// shut makes the reader close the connection, with streams only if force is set. It does not
// block.
func (c *h2Conn) shut(err error, force bool) {
	c.mu.Lock()
	if c.dead || c.first != nil && !force {
		c.mu.Unlock()
		return
	}
	c.die(err)
	c.mu.Unlock()
	_ = c.slot.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
}

// die marks the connection as dead. c.mu is held.
func (c *h2Conn) die(err error) {
	c.dead, c.err = true, err
	c.update()
	c.unblocked.Broadcast()
}

// closeIdle closes the connection, unless it has exchanges. If no callback is running for which it
// would have to wait, the connection is closed when it returns.
func (c *h2Conn) closeIdle() {
	c.mu.Lock()
	if c.dead || c.first != nil {
		c.mu.Unlock()
		return
	}
	if c.delivering != nil {
		c.mu.Unlock()
		c.shut(errConnUnneeded, false)
		return
	}
	c.die(errConnUnneeded)
	c.mu.Unlock()
	c.pool.remove(c)
	c.slot.Discard()
}

// read is the reader.
func (c *h2Conn) read() {
	var err error
	if c.tls != nil {
		err = c.readTLS()
	} else {
		err = c.readPlain()
	}
	c.mu.Lock()
	if c.broken && errors.Is(err, os.ErrDeadlineExceeded) {
		err = c.writeErr
	}
	if !c.dead {
		c.die(err)
	}
	err = c.err
	for s := c.first; s != nil; s = c.first {
		s.stale = s.id > 1
		c.fail(s, err, s.at >= c.sent)
	}
	c.mu.Unlock()
	c.pool.remove(c)
	c.slot.Discard()
	close(c.over)
	if c.pool.waiting() {
		c.pool.serve()
	}
}

func (c *h2Conn) readTLS() error {
	for {
		n, err := c.tls.Read(c.buf)
		if n > 0 && !c.take(c.buf[:n]) || err != nil {
			return readError(err)
		}
	}
}

func (c *h2Conn) readPlain() error {
	var failed error
	err := c.slot.raw.Read(func(fd uintptr) (done bool) {
		for {
			n, errno := nowait.Receive(int(fd), c.buf)
			switch {
			case errno == nowait.Again:
				return false
			case errno != 0:
				failed = errno
				return true
			case n == 0:
				failed = io.EOF
				return true
			case !c.take(c.buf[:n]):
				return true
			}
		}
	})
	return readError(cmp.Or(failed, err))
}

// readError returns the error for a connection of which nothing can be read any more.
func readError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// take handles what was received. It reports false if the connection has ended.
func (c *h2Conn) take(b []byte) bool {
	c.mu.Lock()
	for c.backlogged() && !c.dead {
		c.unblocked.Wait()
	}
	// The reader sends what the exchanges append meanwhile, unless someone is sending.
	mine := !c.flushing
	c.flushing = true
	c.heard, c.pinged = c.pool.owner.tick.Load(), 0
	c.http.Feed(int64(time.Since(c.pool.owner.h2State.start)), b)
	var gone, ends bool
	for !c.dead && c.http.Next(&c.event) {
		switch c.event.Kind {
		case http2.GoAway:
			gone = true
		case http2.SettingsChanged:
			if !c.known {
				c.known = true
				close(c.ready)
			}
		case http2.Head:
			ends = c.takeHead() || ends
		case http2.Data:
			c.takeData()
		case http2.Trailers:
			ends = c.takeTrailers() || ends
		case http2.Reset:
			ends = c.takeReset() || ends
		}
	}
	err := c.http.Err()
	ends = c.settle() || ends
	c.update()
	if mine {
		c.drain()
	}
	if err != nil && !c.dead {
		c.die(err)
	}
	alive, waiting := !c.dead, c.pool.waiting()
	c.mu.Unlock()
	for i, f := range c.flushers {
		c.flushers[i] = nil
		f.Flush()
	}
	c.flushers = c.flushers[:0]
	if gone {
		c.pool.mu.Lock()
		c.pool.retire(c)
		c.pool.mu.Unlock()
	}
	if waiting {
		c.pool.serve()
	}
	if gone || ends {
		c.ended()
	}
	return alive
}

// deliver does what begin does, for a call that passes something to the exchange of s.
func (c *h2Conn) deliver(s *H2Stream) {
	c.backoff = false
	if !s.inNews {
		s.inNews = true
		c.news = append(c.news, s)
	}
	c.begin(s)
}

// settle calls Settle of the exchanges for which something has arrived, and reports whether one
// of them is over. c.mu is held, and released for the calls.
func (c *h2Conn) settle() (ends bool) {
	for len(c.news) > 0 {
		last := len(c.news) - 1
		s := c.news[last]
		c.news[last] = nil
		c.news = c.news[:last]
		s.inNews = false
		over := s.ended && c.http.Ended(s.id)
		if over {
			c.remove(s)
			ends = true
		}
		c.begin(s)
		if f := s.ex.Settle(over); f != nil {
			c.flushers = append(c.flushers, f)
		}
		c.done() // from here on s may serve another exchange
	}
	return ends
}

// forget removes a stream from news. c.mu is held.
func (c *h2Conn) forget(s *H2Stream) {
	if s.inNews {
		s.inNews = false
		i := slices.Index(c.news, s)
		c.news = slices.Delete(c.news, i, i+1)
	}
}

// begin releases the lock to call the exchange of s on the reader, and done takes it again.
func (c *h2Conn) begin(s *H2Stream) {
	c.delivering = s
	c.mu.Unlock()
}

func (c *h2Conn) done() {
	c.mu.Lock()
	c.delivering = nil
}

// fail ends the exchange of s with an error. c.mu is held, and released for the call.
func (c *h2Conn) fail(s *H2Stream, err error, safe bool) {
	ended := s.ended
	safe = safe && !s.head
	c.remove(s)
	if ended {
		return
	}
	c.begin(s)
	s.ex.Fail(err, safe)
	c.done()
}

// takeHead handles the head of a response. It reports whether the exchange is over. So do the
// others.
func (c *h2Conn) takeHead() bool {
	s, end := c.event.Owner.(*H2Stream), c.event.End
	if err := c.http.ReadResponse(&c.response); err != nil {
		return c.failUnlessDead(s, err)
	}
	if c.response.Status < 200 {
		c.deliver(s)
		s.ex.TakeInterim(&c.response)
		c.done()
		return false
	}
	s.head, s.ended = true, end
	c.deliver(s)
	s.ex.TakeHead(&c.response, end)
	c.done()
	return false
}

// failUnlessDead fails s for an error in what it has received. An error of the whole connection is
// left alone, because it fails all streams.
func (c *h2Conn) failUnlessDead(s *H2Stream, err error) bool {
	if c.http.Err() != nil {
		return false
	}
	c.fail(s, err, false)
	return true
}

func (c *h2Conn) takeData() {
	s := c.event.Owner.(*H2Stream)
	s.ended = c.event.End
	c.deliver(s)
	s.ex.TakeData(c.event.Data, c.event.End)
	c.done()
}

func (c *h2Conn) takeTrailers() bool {
	s := c.event.Owner.(*H2Stream)
	if err := c.http.ReadTrailers(&c.trailers); err != nil {
		return c.failUnlessDead(s, err)
	}
	s.ended = true
	c.deliver(s)
	s.ex.TakeTrailers(&c.trailers)
	c.done()
	return false
}

func (c *h2Conn) takeReset() bool {
	s := c.event.Owner.(*H2Stream)
	if s.ended { // the server does not want the rest of the request
		c.wake()
		return false
	}
	c.fail(s, &ResetError{Code: c.event.Code, Local: c.event.Local}, c.event.Code == http2.RefusedStream && !c.event.Local)
	return true
}
