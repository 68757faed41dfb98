//go:build !linux

package nowait

import "syscall"

// Works reports that Send does not work on this platform.
const Works = false

// Send sends nothing, as if the socket's buffer were full.
func Send(int, []byte) (int, syscall.Errno) { return 0, Again }
