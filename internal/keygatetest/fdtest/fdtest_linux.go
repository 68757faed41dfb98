package fdtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/keygatetest/alonetest"
)

// Open is the number of open file descriptors of a process.
type Open struct{ Sockets, Pipes, Others int }

// Total returns the number of all of them.
func (o Open) Total() int { return o.Sockets + o.Pipes + o.Others }

// Count returns the open file descriptors of a process, named as in /proc: "self" is this one.
func Count(t testing.TB, process string) (open Open) {
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

// Limit sets the limit of open files of this process. The test must have called
// alonetest.Alone.
func Limit(t testing.TB, files uint64) {
	t.Helper()
	if !alonetest.Is(t) {
		t.Fatal("Limit without alonetest.Alone")
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: files}); err != nil {
		t.Fatal(err)
	}
}
