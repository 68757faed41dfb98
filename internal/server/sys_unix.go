//go:build unix

package server

import (
	"os"

	"golang.org/x/sys/unix"
)

// Errors of the system that mean "taken": an address by another listener, a file by the lock
// of another process.
const (
	errAddressInUse = unix.EADDRINUSE
	errLocked       = unix.EWOULDBLOCK
)

// tryLock locks a file for this process, or returns errLocked.
func tryLock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// freeSpace returns the bytes that may still be written below dir.
func freeSpace(dir string) (float64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return float64(fs.Bavail) * float64(fs.Bsize), nil
}

// maxFiles returns how many files the process may open, and whether there is a limit.
func maxFiles() (n uint64, limited bool) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 0, false
	}
	return uint64(files.Cur), true //nolint:unconvert // it is an int64 on some systems
}

// mayWrite returns an error if this process may not create files in dir. It creates none.
func mayWrite(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
