//go:build !linux

package nowait

import "syscall"

// Works reports that Receive and Send do not work on this platform.
const Works = false

// Again is the error of a call that would have to wait.
const Again = syscall.EAGAIN

// Receive fails.
func Receive(int, []byte) (int, syscall.Errno) { return 0, syscall.ENOSYS }

// Send sends nothing, as if the socket's buffer were full.
func Send(int, []byte) (int, syscall.Errno) { return 0, Again }
