package sqlite_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/store/sqlite"
)

// Guarantee: Open rejects a file or directory without write permission with a clear error.
func TestReadOnlyFileIsRejected(t *testing.T) {
	for name, modes := range map[string]struct{ dir, file os.FileMode }{
		"file and directory": {0o500, 0o400},
		"file":               {0o700, 0o400},
		"no rights":          {0o700, 0o000},
	} {
		t.Run(name, func(t *testing.T) {
			path := made(t)
			dir := filepath.Dir(path)
			if err := os.Chmod(path, modes.file); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, modes.dir); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
			asNobody(t, filepath.Dir(dir), dir, path)
			db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
			if err == nil {
				_ = db.Close()
				t.Fatal("the file was opened, want an error")
			}
			unavailable(t, err, "cannot be written")
		})
	}
}

// asNobody gives the files to an unprivileged user and runs the rest of the test as that user,
// if the test runs as root, for whom file permissions do not matter.
func asNobody(t *testing.T, paths ...string) {
	t.Helper()
	const nobody = 65534
	if os.Geteuid() != 0 {
		return
	}
	for _, p := range paths {
		if err := os.Chown(p, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread()
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setfsuid(0); err != nil {
			return // the thread stays locked and ends with the test
		}
		runtime.UnlockOSThread()
	})
}
