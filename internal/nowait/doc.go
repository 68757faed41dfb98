// Package nowait receives and sends on sockets without waiting, within a callback of
// syscall.RawConn. The system calls never block, so they bypass the scheduler.
package nowait
