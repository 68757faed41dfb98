// Package winsock peeks at sockets of Windows, and reads them without blocking.
package winsock

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/windows"
)

// ErrNothing is returned by Peek and Receive if nothing has arrived.
var ErrNothing = errors.New("nothing has arrived")

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

// Peek copies what has arrived into b without consuming it, and does not block. n is 0
// without an error at the end of the stream.
func Peek(socket uintptr, b []byte) (n int, err error) {
	return receive(socket, b, windows.MSG_PEEK)
}

// Receive copies what has arrived into b, and does not block if nothing else reads from the
// socket. n is 0 without an error at the end of the stream.
func Receive(socket uintptr, b []byte) (n int, err error) { return receive(socket, b, 0) }

func receive(socket uintptr, b []byte, flags uintptr) (n int, err error) {
	// Go's sockets block, so ask first whether recv would.
	fd := pollFD{socket: socket, events: pollReadNormal}
	ready, _, err := wsaPoll.Call(uintptr(unsafe.Pointer(&fd)), 1, 0)
	switch int32(ready) {
	case 0:
		return 0, ErrNothing
	case -1:
		return 0, err
	}
	r, _, err := recv.Call(socket, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags)
	if int32(r) == -1 {
		return 0, err
	}
	return int(int32(r)), nil
}
