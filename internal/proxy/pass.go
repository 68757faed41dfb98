package proxy

import (
	"io"
	"net"
	"sync"
)

const (
	// passBytes is the size of the buffers of Pass.
	passBytes = 64 << 10
	// waitBytes is the size of the buffer with which Pass waits on a connection that cannot be
	// awaited without a buffer.
	waitBytes = 512
	// fullRecord is the size of a full TLS record: after one, more is likely to follow.
	fullRecord = 16 << 10
)

var passBuffers = sync.Pool{New: func() any { return new([passBytes]byte) }} //nolint:gochecknoglobals // a cache

// Pass copies from one end of a tunnel to the other until from ends, which is not an error, or one
// of them fails. It returns the number of bytes that it wrote.
//
// While nothing arrives, it holds no pipe and at most waitBytes of buffer. io.Copy between two
// sockets would wait in splice(2) with a pipe, which is two file descriptors, for each direction.
func Pass(to io.Writer, from io.Reader) (passed int64, err error) {
	if tcp, ok := from.(*net.TCPConn); ok {
		return passSocket(to, tcp)
	}
	return passAny(to, from)
}

// passAny waits with a small buffer, and then reads with a large buffer as long as a lot arrives.
func passAny(to io.Writer, from io.Reader) (passed int64, err error) {
	small := make([]byte, waitBytes)
	for {
		n, err := from.Read(small)
		full := n == len(small)
		written, err := writeRead(to, small[:n], err)
		passed += written
		if err == nil && full {
			written, err = passMuch(to, from)
			passed += written
		}
		if err != nil {
			return passed, ended(err)
		}
	}
}

func passMuch(to io.Writer, from io.Reader) (passed int64, err error) {
	large := passBuffers.Get().(*[passBytes]byte)
	defer passBuffers.Put(large)
	for {
		n, err := from.Read(large[:])
		much := n >= fullRecord
		written, err := writeRead(to, large[:n], err)
		passed += written
		if err != nil || !much {
			return passed, err
		}
	}
}

// writeRead writes what was read, even if the read also returned readErr.
func writeRead(to io.Writer, b []byte, readErr error) (written int64, err error) {
	if len(b) > 0 {
		n, err := to.Write(b)
		if err != nil {
			return int64(n), err
		}
		written = int64(n)
	}
	return written, readErr
}

// ended returns nil for the end of a stream.
func ended(err error) error {
	if err == io.EOF { //nolint:errorlint // io.Reader returns it unwrapped
		return nil
	}
	return err
}
