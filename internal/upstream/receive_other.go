//go:build !windows && !linux

package upstream

import "syscall"

// errNothingYet is the result of receiveNow if nothing has arrived.
const errNothingYet = syscall.EAGAIN

// receiveNow reads what has arrived on a connection, without blocking: the descriptor is
// non-blocking. It returns 0 without an error at the end of the stream.
func receiveNow(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
