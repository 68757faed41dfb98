//go:build unix

package cli

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openPrivate opens a file for readPrivate.
func openPrivate(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	// FreeBSD reports a symbolic link as EMLINK.
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EMLINK) {
		return nil, &unsafeError{path + " is a symbolic link: replace it by the file itself"}
	}
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(path, f); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

func checkPrivate(path string, f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return &unsafeError{path + " is not a regular file"}
	case int(st.Uid) != os.Geteuid():
		return &unsafeError{path + " belongs to another user"}
	case st.Mode&0o7777 != 0o600:
		return &unsafeError{fmt.Sprintf("%s has mode %04o, so other users may be able to read or change it: run chmod 600 %s", path, st.Mode&0o7777, path)}
	}
	return nil
}

// tryLock locks a file until it is closed, and reports whether no other process has locked it.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// syncDir makes the entries of a directory survive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
