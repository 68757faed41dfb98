package cli

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/telemetry"
)

type serve struct {
	*app
	loader *config.Loader
}

func newServe(a *app) *cobra.Command {
	o := &serve{app: a}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a server",
		Long: `Run a server: the data plane, the management API, and an address for
operators. It needs no other service; everything it keeps is in --data-dir.

Each flag is also an environment variable, KEYGATE_ and its name in capitals
with _ for -, and a key of the file that --config or KEYGATE_CONFIG names. A flag
comes before the environment, which comes before the file.

The first start writes a key for the management API to admin.key in --data-dir.
SIGTERM or SIGINT lets what runs end within --drain-timeout; a second one ends
the server at once.`,
		Args: noArgs,
		RunE: o.run,
	}
	o.loader = config.Register(c.Flags())
	return c
}

func (o *serve) run(c *cobra.Command, _ []string) error {
	settings, err := o.loader.Load(o.Env)
	if err != nil {
		return err
	}
	signals := notify()
	defer signal.Stop(signals)
	_, terminal := isTerminal(o.Out)
	return server.Run(c.Context(), server.Config{
		Settings: settings, Log: telemetry.NewLogger(o.Err, settings.LogLevel, settings.LogFormat),
		Out: o.Out, OutIsTerminal: terminal, Version: o.Version, Env: o.Env,
	}, signals, nil)
}

// notify returns a channel of the signals that end a server.
func notify() chan os.Signal {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	return signals
}
