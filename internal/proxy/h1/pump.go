package h1

import (
	"time"

	"github.com/keygate/keygate/internal/nowait"
	"github.com/keygate/keygate/internal/proxy"
)

// runPump reads the connection until it ends or must be served with ordinary calls.
func (c *conn) runPump() step {
	c.step = stepClose
	err := c.raw.Read(c.onReadable)
	if err != nil && c.x == nil && c.phase.wasCut() == cutShutdown && c.control(proxy.HasArrived) {
		// A request arrived before the connection was to be closed, perhaps at the same moment. If the
		// connection closed now, the client would believe that the request was lost.
		c.phase.enter(phaseIdle, c.engine.clock.In(idleTime))
		_ = c.nc.SetReadDeadline(time.Time{})
		err = c.raw.Read(c.onReadable)
	}
	c.fd = -1
	if err != nil {
		return stepClose // the sweeper has set a deadline, or the connection is closed
	}
	return c.step
}

// readable is called once at the start, and then each time the connection becomes readable.
// It returns false to wait for the next time.
func (c *conn) readable(fd uintptr) (finished bool) {
	c.fd = int(fd)
	for {
		x := c.x
		if x == nil {
			x = c.engine.exchange(c)
			c.x = x
		}
		full := true
		if !x.unseen {
			space := x.space()
			n, more, err := c.receive(space)
			switch {
			case err != nil:
				c.step = stepClose
				return true
			case n == 0 && !more:
				return c.pause()
			}
			full = more
			x.stop += n
		}
		x.unseen = false
		switch next := c.advance(x); {
		case next == stepMore:
			// The end of the connection may have arrived with these bytes and is not
			// signalled again, so read until nothing is left.
		case next != stepIdle:
			c.step = next
			return true
		case !full:
			return c.pause()
		}
	}
}

// receive reads what has arrived into b. n is 0 without an error if nothing is there. more is
// set if something may be left.
func (c *conn) receive(b []byte) (n int, more bool, err error) {
	if c.over == nil {
		return nowait.Read(c.fd, b)
	}
	n, more, err = c.over.ReadNow(uintptr(c.fd), b)
	if c.over.Pending() { // the reply to a KeyUpdate, or an alert
		if failed := c.writeOver(nil); err == nil {
			err = failed
		}
	}
	return n, more, err
}

// pause prepares to wait for the client. It keeps nothing but the bytes received.
func (c *conn) pause() (finished bool) {
	if c.x != nil && !c.x.empty() {
		return false
	}
	if c.drains() {
		c.step = stepLinger
		return true
	}
	if c.x != nil {
		c.engine.release(c.x)
		c.x = nil
	}
	return false
}

// runReader reads a connection that the pump cannot read, until it ends or must be served
// in another way. Between requests it holds no buffer: it reads one byte, and then the
// bytes that the layer below has decrypted together with it.
func (c *conn) runReader() step {
	var first [1]byte
	for {
		x := c.x
		switch {
		case x != nil && x.unseen:
		case x == nil || x.empty():
			if x != nil {
				c.engine.release(x)
				c.x = nil
			}
			if c.drains() {
				return stepLinger
			}
			n, err := c.nc.Read(first[:])
			if n == 0 || err != nil {
				return stepClose
			}
			x = c.engine.exchange(c)
			c.x = x
			x.add(first[:])
			fallthrough
		default:
			n, err := c.nc.Read(x.space())
			if n == 0 && err != nil {
				return stepClose
			}
			x.stop += n
		}
		x.unseen = false
		if next := c.advance(x); next > stepMore {
			return next
		}
	}
}

// advance serves the requests that were received.
func (c *conn) advance(x *exchange) step {
	for x != nil && !x.empty() {
		x.head = x.in[x.start:x.stop]
		done, err := x.parser.Parse(x.head, &x.req)
		switch {
		case err != nil:
			return c.refuseSyntax(x, err)
		case !done:
			if phaseOf(c.phase.word.Load()) != phaseHead && c.phase.enter(phaseHead, c.engine.clock.In(headTime)) != notCut {
				return stepClose
			}
			x.makeSpace()
			return stepMore
		}
		x.after = x.start + x.req.End
		next := c.request(x)
		if next != stepIdle {
			return next
		}
		c.nextRequest(x)
		x = c.x
	}
	if x != nil {
		x.rewind()
	}
	return stepIdle
}
