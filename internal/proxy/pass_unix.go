//go:build unix

package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// readable is a connection that is read with a buffer only once something has arrived.
type readable struct {
	raw  syscall.RawConn
	read func(fd uintptr) bool // receive, bound once

	buf *[passBytes]byte // nil while it waits
	n   int
	err error
}

// passSocket is Pass from a socket.
func passSocket(to io.Writer, from *net.TCPConn) (passed int64, err error) {
	raw, err := from.SyscallConn()
	if err != nil {
		return 0, err
	}
	r := &readable{raw: raw}
	r.read = r.receive
	return r.pass(to)
}

// receive is called by RawConn.Read. It returns false to wait until something arrives.
func (r *readable) receive(fd uintptr) (done bool) {
	if r.buf == nil {
		r.buf = passBuffers.Get().(*[passBytes]byte)
	}
	for {
		r.n, r.err = unix.Read(int(fd), r.buf[:])
		switch {
		case errors.Is(r.err, unix.EINTR):
			continue
		case errors.Is(r.err, unix.EAGAIN):
			r.free()
			return false
		case r.err != nil:
			r.n, r.err = 0, os.NewSyscallError("read", r.err)
		case r.n == 0:
			r.err = io.EOF
		}
		return true
	}
}

func (r *readable) free() {
	if r.buf != nil {
		passBuffers.Put(r.buf)
		r.buf = nil
	}
}

func (r *readable) pass(to io.Writer) (passed int64, err error) {
	defer r.free()
	for {
		if err := r.raw.Read(r.read); err != nil { // closed, or past its deadline
			return passed, err
		}
		written, err := writeRead(to, r.buf[:r.n], r.err)
		passed += written
		if err != nil {
			return passed, ended(err)
		}
	}
}
