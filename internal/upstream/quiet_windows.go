package upstream

import (
	"errors"

	"github.com/keygate/keygate/internal/winsock"
)

// isQuiet reports whether a connection has nothing to read, not even its end.
func isQuiet(fd uintptr) bool {
	var b [1]byte
	_, err := winsock.Peek(fd, b[:])
	return errors.Is(err, winsock.ErrNothing)
}
