package nowait

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	ws2     = windows.NewLazySystemDLL("ws2_32.dll")
	wsaPoll = ws2.NewProc("WSAPoll")
	recv    = ws2.NewProc("recv")
)

// pollFD is WSAPOLLFD.
type pollFD struct {
	socket   uintptr
	events   int16
	returned int16
}

const pollReadNormal = 0x0100 // POLLRDNORM

// Receive reads what has arrived into b, and does not block if nothing else reads from the socket.
// n is 0 without an error at the end of the stream. If nothing has arrived, the error is Again.
func Receive(fd int, b []byte) (n int, err syscall.Errno) { return receive(fd, b, 0) }

// Peek is Receive, but leaves the bytes in the socket.
func Peek(fd int, b []byte) (n int, err syscall.Errno) { return receive(fd, b, windows.MSG_PEEK) }

func receive(fd int, b []byte, flags uintptr) (n int, errno syscall.Errno) {
	// Go's sockets block, so ask first whether recv would.
	poll := pollFD{socket: uintptr(fd), events: pollReadNormal}
	ready, _, err := wsaPoll.Call(uintptr(unsafe.Pointer(&poll)), 1, 0)
	switch int32(ready) {
	case 0:
		return 0, Again
	case -1:
		return 0, errnoOf(err)
	}
	r, _, err := recv.Call(uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags)
	if int32(r) == -1 {
		return 0, errnoOf(err)
	}
	return int(int32(r)), 0
}

// errnoOf returns the error that a call of a procedure returned, which is always a syscall.Errno.
func errnoOf(err error) (errno syscall.Errno) {
	if !errors.As(err, &errno) {
		return syscall.EINVAL
	}
	return errno
}
