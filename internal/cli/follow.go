package cli

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
)

// refuseYAML returns a usage error if the output of a command with --follow would be YAML.
func (a *app) refuseYAML() error {
	if a.Format == terminal.FormatYAML {
		return usagef("--follow cannot be used with -o yaml: use a table or -o json")
	}
	return nil
}

// untilSignal returns a context for a command that follows, which ends with the command's context or when
// a signal arrives. It is also the context of later calls. The caller must call stop.
func (a *app) untilSignal(c *cobra.Command) (ctx context.Context, stop context.CancelFunc) {
	a.Context, stop = signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	return a.Context, stop
}
