package cli

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// refuseYAML returns a usage error if the output of a command with --follow would be YAML.
func (a *app) refuseYAML() error {
	if a.output == formatYAML {
		return usagef("--follow cannot be used with -o yaml: use a table or -o json")
	}
	return nil
}

// untilSignal returns a context for a command that follows, which ends with the command's context or when
// a signal arrives. It is also that of later calls. The caller must call stop.
func (a *app) untilSignal(c *cobra.Command) (ctx context.Context, stop context.CancelFunc) {
	a.ctx, stop = signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	return a.ctx, stop
}

// newStream returns a table whose rows are shown as they come.
func (a *app) newStream(columns ...column) *table {
	t := a.newTable(columns...)
	t.stream = true
	return t
}
