package h1

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/proxy/send"
	"github.com/keygate/keygate/internal/upstream"
)

// block serves what the pump cannot, with blocking reads and writes.
func (c *conn) block(x *exchange) step {
	next := stepBlock
	switch {
	case x.refused:
	case x.Verdict.Action == admit.Serve:
		next = c.readHolder(x)
	case x.validates():
		next = c.validate(x)
	default:
		next = c.exchange(x)
	}
	if next == stepBlock { // the request was refused, and its body is still to come
		next = c.drain(x)
	}
	if next == stepIdle {
		if c.nextRequest(x); c.x != nil {
			c.x.unseen = true
		}
	}
	return next
}

// upload forwards a request's body to the upstream while the response is relayed.
type upload struct {
	c        *conn
	x        *exchange        // its body and input belong to the upload while it runs
	to       *upstream.H1Conn // the upstream, or nil
	call     *send.H2Try      // the upstream over HTTP/2, or nil
	done     chan struct{}
	complete atomic.Bool // all of it was written to the upstream's connection
	ending   atomic.Bool // the last write has begun
	started  atomic.Bool // a byte of the body was read
	stopped  atomic.Bool // endUpload ends it, because the exchange is over
	err      error       // of the client; valid once done is closed
	rest     []byte      // what was received after the body

	mu        sync.Mutex // held while anything goes to the client
	settled   bool       // no 100 may be sent from now on
	continued bool       // the gateway sent a 100
	timer     *time.Timer
}

// expect schedules a 100 for a client that waits for one, in case the upstream sends none
// in time.
func (u *upload) expect() {
	if u.x.req.ExpectsContinue() && u.x.req.Minor > 0 {
		u.timer = time.AfterFunc(u.c.engine.cfg.Pools.ContinueTimeout(), u.sendContinue)
	}
}

func (u *upload) sendContinue() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.settled && !u.started.Load() {
		u.settled, u.continued = true, true
		_ = u.c.write([]byte("HTTP/1.1 100 Continue\r\n\r\n")) // an error shows at the next read
	}
}

// settle prevents a 100 from being sent from now on.
func (u *upload) settle() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.settled = true
	if u.timer != nil {
		u.timer.Stop()
	}
}

func newUpload(x *exchange) *upload {
	u := &upload{c: x.c, x: x, to: x.attempt.Conn(), call: x.attempt.H2(), done: make(chan struct{})}
	if before := x.upload; before != nil { // the request is sent a second time
		u.settled, u.continued = before.continued || before.started.Load(), before.continued
		u.started.Store(before.started.Load())
	}
	return u
}

// startUpload forwards what is left of the body from another goroutine.
func (c *conn) startUpload(x *exchange) {
	u := newUpload(x)
	x.upload = u
	if x.body.Done() {
		u.ending.Store(true)
	} else {
		c.uploading.Store(true)
		u.expect()
	}
	go u.run()
}

// run forwards the body.
func (u *upload) run() {
	defer close(u.done)
	defer func() {
		u.c.uploading.Store(false)
		u.c.reading.enter(phaseNone, 0)
		if p := recover(); p != nil {
			u.c.engine.cfg.Log.Error("upload panicked", "request_id", u.x.RequestID(), "panic", p)
			u.fail(message.ErrTruncated)
		}
	}()
	if u.call != nil && (len(u.x.part) > 0 || u.x.body.Done()) && !u.send(u.x.part, nil) {
		return
	}
	b := u.c.engine.buffers.Get()
	defer u.c.engine.buffers.Put(b)
	for !u.x.body.Done() {
		if n := u.x.body.Left() - send.SpliceKeep; n >= send.SpliceFrom && u.c.plain && !u.x.IsMetered() && u.to != nil && u.to.Plain() != nil && u.started.Load() {
			if !u.splice(n) {
				return
			}
		}
		n, err := u.read(b.Area())
		if n == 0 {
			u.fail(readError(err))
			return
		}
		p, err := u.x.body.Step(b.Data, message.Front, message.Front+n)
		if err != nil {
			u.fail(err)
			return
		}
		if u.x.body.Done() {
			u.rest = append(u.rest, b.Data[p.Used:message.Front+n]...)
			u.ending.Store(true)
		}
		if !u.send(b.Data[p.From:p.To], p.End) {
			return // the response, or the lack of one, decides what follows
		}
		u.x.Passed(u.x.body.Moved(), 0)
	}
	u.complete.Store(true)
}

// read reads from the client. For a client that waits for a 100, the stall timeout applies
// only after the first byte of the body.
func (u *upload) read(b []byte) (int, error) {
	if u.started.Load() || !u.x.req.ExpectsContinue() {
		u.c.reading.enter(phaseReading, u.c.engine.clock.In(stallTime))
	}
	n, err := u.c.nc.Read(b)
	u.c.reading.enter(phaseNone, 0)
	if n > 0 {
		u.started.Store(true)
	}
	return n, err
}

// splice moves n bytes from socket to socket.
func (u *upload) splice(n int64) bool {
	u.x.attempt.H1().KeepNothing()
	rest := io.LimitedReader{R: u.c.tcp, N: n}
	u.c.reading.enter(phaseReading, u.c.engine.clock.In(stallTime))
	moved, err := u.c.engine.move(u.to.Plain(), &rest)
	u.to.NoteWrite(err)
	stalled := u.c.reading.enter(phaseNone, 0) != notCut
	u.x.body.Skip(moved)
	if wrong := u.x.attempt.Framing().Count(int(moved), false); err == nil {
		err = wrong
	}
	if err == nil && rest.N > 0 || stalled {
		u.fail(message.ErrTruncated)
		return false
	}
	return err == nil
}

// send sends a part of the body. Over HTTP/1.1 it is framed, and end follows it.
func (u *upload) send(part, end []byte) bool {
	if u.call == nil {
		trip := u.x.attempt.H1()
		trip.KeepPart(part)
		trip.KeepPart(end)
		return u.write(part) && u.write(end)
	}
	section, trailers := u.x.body.Trailers()
	last := u.x.body.Done() && len(trailers) == 0
	if (len(part) > 0 || last) && u.call.Send(part, last) != nil {
		return false
	}
	return len(trailers) == 0 || u.call.SendTrailers(section, trailers) == nil
}

func (u *upload) write(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	_, err := u.to.Write(b)
	return err == nil
}

// fail records an error of the client and ends the exchange. If endUpload has interrupted a read,
// that is not an error of the client.
func (u *upload) fail(err error) {
	if u.stopped.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	u.err = err
	if u.call != nil {
		u.call.Interrupt()
		return
	}
	u.to.Interrupt()
}

func readError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return message.ErrTruncated
	}
	return err
}

// endUpload ends what remains of an upload after the response. It reports whether the whole
// request was sent, so that both connections can serve another.
func (c *conn) endUpload(x *exchange) (whole bool) {
	u := x.upload
	if u == nil {
		return true
	}
	u.settle()
	if u.call != nil && !u.complete.Load() { // what it has not sent is dropped
		u.call.Close()
	}
	switch {
	case u.complete.Load():
	case u.ending.Load():
		if u.to == nil {
			break
		}
		// The last part is on its way. If the upstream does not take it, endUpload does not wait.
		to := u.to.NetConn()
		_ = to.SetWriteDeadline(time.Now().Add(proxy.LastPartTime))
		<-u.done
		_ = to.SetWriteDeadline(time.Time{})
	default:
		u.stopped.Store(true)
		if u.to != nil {
			u.to.Interrupt()
		}
		_ = c.nc.SetReadDeadline(past)
		<-u.done
		_ = c.nc.SetReadDeadline(time.Time{}) // for linger
	}
	<-u.done
	c.uploading.Store(false)
	if len(u.rest) > 0 {
		x.after = x.stop
		x.add(u.rest)
		u.rest = nil
	}
	return u.complete.Load() || u.call != nil && u.ending.Load()
}
