package upstream

import "github.com/keygate/keygate/internal/winsock"

// errNothingYet is the result of receiveNow if nothing has arrived.
var errNothingYet = winsock.ErrNothing

// receiveNow reads what has arrived on a connection, without blocking. It returns 0 without
// an error at the end of the stream.
func receiveNow(fd uintptr, p []byte) (int, error) { return winsock.Receive(fd, p) }
