package cli

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
)

func newHealthcheck(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask whether the server on this machine is ready",
		Long: `Ask /readyz at --ops-addr, as the health check of a container whose image has no other
program. It takes the flags, the environment and the file of "keygate serve". It prints
nothing and exits with 0 if the server is ready; else it says why not, and exits with 1.`,
		Example: "  keygate healthcheck --ops-addr :8082", Args: noArgs,
	}
	return a.withSettings(c, func(ctx context.Context, settings *config.Config, _ *slog.Logger, _ []string) error {
		return server.CheckReady(ctx, settings)
	})
}
