package proctest

import (
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"
)

// LimitFileSize limits the size of files that this process writes, as if the disk were full, until release is
// called. The test must have called Alone: the test binary writes files too, for go test.
func LimitFileSize(t *testing.T, bytes uint64) (release func()) {
	t.Helper()
	if !IsAlone(t) {
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
