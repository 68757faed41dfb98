package disktest

import (
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/keygatetest/alonetest"
)

// Alone reports whether the test may call LimitFileSize, and if not, runs it in a process of
// its own, for which Alone returns true. The limit holds for a whole process: the test binary
// itself writes files too, for go test.
func Alone(t *testing.T) bool {
	t.Helper()
	return alonetest.Alone(t)
}

// LimitFileSize limits the size of files that this process writes, until release is called.
// The test must have called Alone.
func LimitFileSize(t *testing.T, bytes uint64) (release func()) {
	t.Helper()
	if !alonetest.Is(t) {
		t.Fatal("LimitFileSize without Alone")
	}
	signal.Ignore(unix.SIGXFSZ)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(l unix.Rlimit) {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &l); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.Rlimit{Cur: bytes, Max: before.Max})
	return func() {
		set(before)
		signal.Reset(unix.SIGXFSZ)
	}
}
