//go:build unix

package server

import (
	"io/fs"
	"os"
	"syscall"

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

// othersMayWrite reports whether other users may create and replace files in a directory. The group does not
// count if it is root's, or if this process is not the owner and so needs the group itself: in containers, an
// arbitrary user ID often has access to a volume only by its group.
func othersMayWrite(dir fs.FileInfo) bool {
	mode := dir.Mode().Perm()
	if stat, ok := dir.Sys().(*syscall.Stat_t); ok && (stat.Gid == 0 || int(stat.Uid) != os.Geteuid()) {
		return mode&0o002 != 0
	}
	return mode&0o022 != 0
}
