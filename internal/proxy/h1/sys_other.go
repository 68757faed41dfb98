//go:build !linux

package h1

import "syscall"

// canPump reports that connections are read with blocking calls only.
const canPump = false

const again = syscall.EAGAIN

func receive(int, []byte) (int, syscall.Errno) { return 0, syscall.ENOSYS }

func send(int, []byte) (int, syscall.Errno) { return 0, again }

// isClosed and isReset report that the connection stands: on this platform, the gateway
// notices that a client has left when it reads from it or writes to it.
func isClosed(uintptr) bool { return false }

func isReset(uintptr) bool { return false }

// traffic reports that something always waits to be read and nothing to be sent: stalls
// cannot be detected on this platform.
func traffic(uintptr) (moved uint64, unread, unsent int) { return 0, 1, 0 }
