package server

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// Errors of the system that mean "taken": an address by another listener, a file by the lock
// of another process.
const (
	errAddressInUse = windows.WSAEADDRINUSE
	errLocked       = windows.ERROR_LOCK_VIOLATION
)

// tryLock locks a file for this process, or returns errLocked. Windows forbids others to
// read locked bytes, so the locked byte lies far behind the content.
func tryLock(f *os.File) error {
	at := windows.Overlapped{OffsetHigh: 1}
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
}

// freeSpace returns the bytes that may still be written below dir.
func freeSpace(dir string) (float64, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, err
	}
	return float64(free), nil
}

// maxFiles returns how many files the process may open, and whether there is a limit.
func maxFiles() (n uint64, limited bool) { return 0, false }

// mayWrite returns nil: whether a process may write can only be found out by writing.
func mayWrite(string) error { return nil }

// othersMayWrite returns false: on Windows the rights of the directory apply, which it does not examine.
func othersMayWrite(fs.FileInfo) bool { return false }
