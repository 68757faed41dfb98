// Package nowait receives and sends on sockets without waiting, within a callback of
// syscall.RawConn. On Linux the system calls bypass the scheduler, since they never block.
package nowait

import "syscall"

// Again is the error of a call that would have to wait.
const Again = syscall.EAGAIN
