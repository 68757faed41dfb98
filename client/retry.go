package client

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// A server that has no slot for a document makes a call wait for 10 s (contract, section 5), so that all tries of
// WhileBusy together take about a minute.
const (
	busyTries    = 5
	longestPause = 10 * time.Second
)

// WhileBusy calls a function again while the server has no slot for the document that the call sends or reads: while
// the response is 429 with a Retry-After of at most 10 s, and five times at most. wait, which may be nil, is called before
// each pause. The error is what the last try returned, or ctx.Err() if ctx ends during a pause.
func WhileBusy[T any](ctx context.Context, wait func(*Error), call func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		r, err := call()
		var busy *Error
		if !errors.As(err, &busy) || busy.Status != http.StatusTooManyRequests || busy.RetryAfter <= 0 || busy.RetryAfter > longestPause || try == busyTries {
			return r, err
		}
		if wait != nil {
			wait(busy)
		}
		pause := time.NewTimer(busy.RetryAfter)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return r, ctx.Err()
		}
	}
}
