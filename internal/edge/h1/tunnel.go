package h1

import (
	"io"
	"net"
	"sync"
)

// tunnel passes bytes both ways after a 101, until both directions have ended or
// one of them breaks.
func (c *conn) tunnel(x *exchange) step {
	up := x.up
	back := up.NetConn()
	defer up.Discard()
	if c.main.enter(phaseTunnel, 0) != notCut {
		return stepClose
	}
	toClient := append([]byte(nil), x.buf[x.from:x.to]...)
	toUpstream := append([]byte(nil), x.in[x.after:x.end]...)
	x.up = nil
	c.engine.release(x)
	c.x = nil

	var upward sync.WaitGroup
	upward.Go(func() {
		defer c.engine.recoverIn("a tunnel")
		pass(back, c.nc, toUpstream)
	})
	func() {
		defer upward.Wait()
		pass(c.nc, back, toClient)
	}()
	return stepClose
}

// pass copies one direction and then closes it, so that the other can go on; if
// it breaks, both end.
func pass(to, from net.Conn, first []byte) {
	_, err := to.Write(first)
	if err == nil {
		_, err = io.Copy(to, from)
	}
	if half, ok := to.(interface{ CloseWrite() error }); err == nil && ok && half.CloseWrite() == nil {
		return
	}
	_ = to.Close()
	_ = from.Close()
}
