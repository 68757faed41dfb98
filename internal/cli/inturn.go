package cli

import (
	"context"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// inTurn calls a function until the server has a slot for its document, and says why it waits.
func inTurn[T any](ctx context.Context, a *app, call func() (T, error)) (T, error) {
	return client.WhileBusy(ctx, a.sayBusy, call)
}

func (a *app) sayBusy(busy *client.Error) {
	a.Say("The server is busy: trying again in %s (%s).", busy.RetryAfter, terminal.Clean(busy.Message))
}
