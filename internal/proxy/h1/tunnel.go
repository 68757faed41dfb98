package h1

import (
	"io"
	"net"
	"sync"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/proxy"
)

// tunnel copies bytes both ways after a 101, until both directions have ended or one of
// them breaks.
func (c *conn) tunnel(x *exchange) step {
	rest := x.attempt.Tunnel()
	toClient := append([]byte(nil), rest...)
	up, ending, ended := x.attempt.Detach()
	defer ended()
	back := up.NetConn()
	defer up.Discard()
	c.prepareTunnel(x, ending)
	if why := c.phase.enter(phaseTunnel, 0); why != notCut {
		x.noteCut(why)
		x.emitForwarded()
		return stepClose
	}
	record := x.Detach(x.attempt.Status())
	c.detached.Store(record)
	toUpstream := append([]byte(nil), x.in[x.after:x.stop]...)
	c.engine.release(x)
	c.x = nil

	var upward sync.WaitGroup
	var in, out int64
	upward.Go(func() {
		defer c.engine.recoverIn("a tunnel")
		in = pass(back, record.Upward(back), c.nc, toUpstream)
	})
	func() {
		defer upward.Wait()
		defer c.engine.recoverIn("a tunnel")
		out = pass(c.nc, record.Downward(c.nc), back, toClient)
	}()
	if c.phase.wasCut() == cutAccess {
		record.CutBy(c.denied)
	}
	record.Emit(in, out)
	return stepClose
}

// prepareTunnel copies what the sweeper needs to know about a tunnel, so that the memory of x is free.
func (c *conn) prepareTunnel(x *exchange, ending *balance.Ending) {
	a := x.Verdict.Admission(x.Method)
	c.tunneled = a.Clone()
	c.tunneled.SetEnding(ending)
}

// pass copies one direction through w, which writes to to, and then closes it, so that the other can continue. If it
// breaks, both end. It returns the number of bytes copied.
func pass(to net.Conn, w io.Writer, from net.Conn, first []byte) (passed int64) {
	goesOn := false
	defer func() {
		if !goesOn {
			_ = to.Close()
			_ = from.Close()
		}
	}()
	n, err := w.Write(first)
	passed = int64(n)
	if err == nil {
		var rest int64
		rest, err = proxy.Pass(w, from)
		passed += rest
	}
	half, ok := to.(interface{ CloseWrite() error })
	goesOn = err == nil && ok && half.CloseWrite() == nil
	return passed
}
