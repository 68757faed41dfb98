package tlspump

import (
	"crypto/tls"
	"net"
	"os"
	"syscall"

	"github.com/keygate/keygate/internal/nowait"
)

// writePiece is how much is encrypted before it is sent, in bytes.
const writePiece = 64 << 10

// Pump is a client's connection, plain or over TLS, that is read within a callback and written
// without blocking. Its reads must not overlap, nor its writes; a read and a write may.
type Pump struct {
	nc   net.Conn
	raw  syscall.RawConn
	tls  *tls.Conn // nc, or nil
	conn *Conn     // below tls

	// State of writes.
	rest       []byte // of the bytes that Write was given
	onWritable func(fd uintptr) bool
	errno      syscall.Errno
}

// NewPump returns a Pump for nc, or nil if nc can only be used with ordinary calls. nc is a
// *net.TCPConn or a connection that returns one from NetConn and does not change its bytes, or
// a *tls.Conn above a Conn, whose handshake is complete.
func NewPump(nc net.Conn) *Pump {
	if !nowait.Works {
		return nil
	}
	p := &Pump{nc: nc}
	if t, ok := nc.(*tls.Conn); ok {
		if p.conn = Of(t); p.conn == nil {
			return nil
		}
		p.tls, p.raw = t, p.conn.raw
		return p
	}
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		w, wraps := nc.(interface{ NetConn() net.Conn })
		if !wraps {
			return nil
		}
		if tcp, ok = w.NetConn().(*net.TCPConn); !ok {
			return nil
		}
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	p.raw = raw
	p.onWritable = p.writable
	return p
}

// Run calls readable at the start and each time the connection becomes readable, until that
// returns true or the read deadline has passed.
func (p *Pump) Run(readable func(fd uintptr) (finished bool)) error { return p.raw.Read(readable) }

// ReadNow is Conn.ReadNow, also for a plain connection.
func (p *Pump) ReadNow(fd uintptr, b []byte) (n int, more bool, err error) {
	if p.tls != nil {
		return p.conn.ReadNow(p.tls, fd, b)
	}
	return nowait.Read(int(fd), b)
}

// Pending reports whether a read has left something to be sent. Write sends it, even if it is
// given no bytes.
func (p *Pump) Pending() bool { return p.conn != nil && p.conn.Pending() }

// Write sends as much of b as the socket has room for, without blocking. Over TLS it sends several
// records with one system call. all is set if nothing is left; otherwise Finish sends the rest, and
// b must not change until then. After an error the connection is unusable.
func (p *Pump) Write(b []byte) (all bool, err error) {
	if p.tls != nil {
		return p.seal(b)
	}
	if p.rest = b; len(b) == 0 {
		return true, nil
	}
	p.errno = 0
	if err := p.raw.Write(p.onWritable); err != nil {
		return false, err
	}
	if p.errno != 0 && p.errno != nowait.Again {
		return false, os.NewSyscallError("sendto", p.errno)
	}
	return len(p.rest) == 0, nil
}

// writable is called within RawConn.Write.
func (p *Pump) writable(fd uintptr) (finished bool) {
	var n int
	n, p.errno = nowait.Send(int(fd), p.rest)
	p.rest = p.rest[n:]
	return true
}

// seal is Write over TLS. The rest that it leaves is in p.rest and in the Conn.
func (p *Pump) seal(b []byte) (all bool, err error) {
	for {
		n := min(len(b), writePiece)
		p.rest = b[n:]
		if n > 0 {
			p.conn.Hold()
			_, err = p.tls.Write(b[:n])
			p.conn.Unhold()
			if err != nil {
				return false, err
			}
		}
		if all, err = p.conn.SendNow(); !all || err != nil || len(p.rest) == 0 {
			return all && len(p.rest) == 0, err
		}
		b = p.rest
	}
}

// Finish sends what Write has left. It blocks until the write deadline.
func (p *Pump) Finish() error {
	rest := p.rest
	p.rest = nil
	if p.tls == nil {
		_, err := p.nc.Write(rest)
		return err
	}
	if err := p.conn.Send(); err != nil {
		return err
	}
	if len(rest) == 0 {
		return nil
	}
	_, err := p.nc.Write(rest)
	return err
}
