package cli

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// A push that the server has no place for is tried again (contract, section 5): each try waits for a
// place for 10 s on the server, so that all of them together take about a minute.
const (
	pushTries    = 5
	longestPause = 10 * time.Second
)

// inTurn calls a function until the server has a place for its document, and says why it waits. The error is
// that of the last try.
func inTurn[T any](ctx context.Context, a *app, call func() (*T, error)) (*T, error) {
	for try := 1; ; try++ {
		r, err := call()
		var busy *client.Error
		if !errors.As(err, &busy) || busy.Status != http.StatusTooManyRequests || busy.RetryAfter <= 0 || busy.RetryAfter > longestPause || try == pushTries {
			return r, err
		}
		a.Say("The server is busy: trying again in %s (%s).", busy.RetryAfter, terminal.Clean(busy.Message))
		pause := time.NewTimer(busy.RetryAfter)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		}
	}
}
