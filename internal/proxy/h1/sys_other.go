//go:build !linux

package h1

import "syscall"

// canPump tells that connections are read in the ordinary way alone.
const canPump = false

const again = syscall.EAGAIN

func receive(int, []byte) (int, syscall.Errno) { return 0, syscall.ENOSYS }

func send(int, []byte) (int, syscall.Errno) { return 0, again }

func hungUp(uintptr) bool { return false }

func brokenOff(uintptr) bool { return false }

// traffic says that something is always waiting to be read, and nothing to be
// sent: a stall cannot be seen here.
func traffic(uintptr) (moved uint64, unread, unsent int) { return 0, 1, 0 }
