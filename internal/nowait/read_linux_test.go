package nowait

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Guarantee: Read returns what has arrived, and distinguishes nothing, a full buffer, the end of
// the stream and a failure.
func TestRead(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	near, far := pair[0], pair[1]
	b := make([]byte, 4)
	check := func(when string, wantN int, wantMore bool, wantErr error) {
		t.Helper()
		if n, more, err := Read(near, b); n != wantN || more != wantMore || err != wantErr { //nolint:errorlint // it is not wrapped
			t.Errorf("%s: got %d, %v, error %v; want %d, %v, error %v", when, n, more, err, wantN, wantMore, wantErr)
		}
	}
	check("before anything was sent", 0, false, nil)
	if _, errno := Send(far, []byte("abcdef")); errno != 0 {
		t.Fatal(errno)
	}
	check("with more than fits", 4, true, nil)
	check("with less than fits", 2, false, nil)
	if err := unix.Close(far); err != nil {
		t.Fatal(err)
	}
	check("at the end of the stream", 0, false, io.EOF)
	if err := unix.Close(near); err != nil {
		t.Fatal(err)
	}
	var failed *os.SyscallError
	if n, _, err := Read(-1, b); n != 0 || !errors.As(err, &failed) {
		t.Errorf("without a socket: got %d, error %v; want an *os.SyscallError", n, err)
	}
}
