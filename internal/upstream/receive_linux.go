package upstream

import "github.com/keygate/keygate/internal/nowait"

// errNothingYet is the result of receiveNow if nothing has arrived.
const errNothingYet = nowait.Again

// receiveNow reads what has arrived on a connection, without blocking. It returns 0 without
// an error at the end of the stream.
func receiveNow(fd uintptr, p []byte) (int, error) {
	n, errno := nowait.Receive(int(fd), p)
	if errno != 0 {
		return 0, errno
	}
	return n, nil
}
