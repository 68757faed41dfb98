package cli

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// openPrivate opens a file for readPrivate.
func openPrivate(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &unsafeError{path + " is not a regular file"}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	own, err := isOwn(f)
	if err == nil && !own {
		err = &unsafeError{path + " belongs to another user"}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// isOwn reports whether a file belongs to the caller, or to the administrators, who own what a
// member creates with raised rights.
func isOwn(f *os.File) (bool, error) {
	sd, err := windows.GetSecurityInfo(windows.Handle(f.Fd()), windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return false, fmt.Errorf("read the owner of %s: %w", f.Name(), err)
	}
	owner, _, err := sd.Owner()
	if err != nil {
		return false, fmt.Errorf("read the owner of %s: %w", f.Name(), err)
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return false, fmt.Errorf("read the user of this process: %w", err)
	}
	return owner.Equals(user.User.Sid) || owner.IsWellKnown(windows.WinBuiltinAdministratorsSid), nil
}

// tryLock locks a file until it is closed, and reports whether no other process has locked it.
func tryLock(f *os.File) (bool, error) {
	var at windows.Overlapped
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// syncDir does nothing: Windows cannot make the entries of a directory durable.
func syncDir(string) error { return nil }
