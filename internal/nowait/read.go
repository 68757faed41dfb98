package nowait

import (
	"io"
	"os"
)

// Read reads what has arrived into b, which must not be empty. n is 0 without an error if nothing
// is there. more is set if something may be left. The error is io.EOF at the end of the stream,
// and otherwise an *os.SyscallError.
func Read(fd int, b []byte) (n int, more bool, err error) {
	n, errno := Receive(fd, b)
	switch {
	case errno == Again:
		return 0, false, nil
	case errno != 0:
		return 0, false, os.NewSyscallError("recvfrom", errno)
	case n == 0:
		return 0, false, io.EOF
	}
	return n, n == len(b), nil
}
