package proctest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Descriptors is the number of open file descriptors of a process.
type Descriptors struct{ Sockets, Pipes, Others int }

// Total returns the number of all of them.
func (d Descriptors) Total() int { return d.Sockets + d.Pipes + d.Others }

// CountDescriptors returns the open file descriptors of a process, named as in /proc: "self" is this one.
func CountDescriptors(t testing.TB, process string) (open Descriptors) {
	t.Helper()
	dir := "/proc/" + process + "/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch target, err := os.Readlink(filepath.Join(dir, e.Name())); {
		case err != nil: // closed meanwhile
		case strings.HasPrefix(target, "socket:"):
			open.Sockets++
		case strings.HasPrefix(target, "pipe:"):
			open.Pipes++
		default:
			open.Others++
		}
	}
	return open
}

// LimitDescriptors sets the limit of open files of this process. The test must have called Alone.
func LimitDescriptors(t testing.TB, files uint64) {
	t.Helper()
	if !IsAlone(t) {
		t.Fatal("LimitDescriptors without Alone")
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: files}); err != nil {
		t.Fatal(err)
	}
}
