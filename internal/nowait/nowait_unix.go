//go:build unix && !linux

package nowait

import (
	"errors"
	"syscall"
)

// Receive reads what has arrived into b. n is 0 without an error at the end of the stream. If
// nothing has arrived, the error is Again. The descriptor must be non-blocking, as Go's descriptors
// are.
func Receive(fd int, b []byte) (n int, err syscall.Errno) {
	return retried(func() (int, error) { return syscall.Read(fd, b) })
}

// Peek is Receive, but leaves the bytes in the socket.
func Peek(fd int, b []byte) (n int, err syscall.Errno) {
	return retried(func() (int, error) {
		n, _, err := syscall.Recvfrom(fd, b, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return n, err
	})
}

// retried makes a system call again while a signal interrupts it.
func retried(call func() (int, error)) (n int, errno syscall.Errno) {
	for {
		n, err := call()
		if errno = 0; err != nil && !errors.As(err, &errno) {
			errno = syscall.EINVAL
		}
		if errno != syscall.EINTR {
			return max(n, 0), errno
		}
	}
}
