package cli

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/demo"
	"github.com/keygate/keygate/internal/config"
)

type demoCommand struct {
	*app
	loader    *config.Loader
	tour      bool
	noTraffic bool
}

func newDemo(a *app) *cobra.Command {
	o := &demoCommand{app: a}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run a server with a sample service behind it, and print commands to try",
		Long: `Run a server in a temporary directory, with a sample service, a gateway in front of
it and a key, and print the address of the dashboard and commands to try. It needs no
network. It takes the same flags and environment variables as serve. Ctrl-C stops the
demo and removes everything.

A few times a second it calls the gateway itself, with keys of its own, so that the
dashboard and the reports show traffic: some calls are refused, and a few fail. One of
its two webhook receivers fails at times. --no-traffic turns this off.

With --tour it prints many more commands, which show everything that Keygate does.`,
		Args: noArgs,
		RunE: o.run,
	}
	c.Flags().BoolVar(&o.tour, "tour", false, "print commands for everything that Keygate does")
	c.Flags().BoolVar(&o.noTraffic, "no-traffic", false, "make no calls, so that there are only yours")
	o.loader = config.Register(c.Flags())
	return c
}

func (o *demoCommand) run(c *cobra.Command, _ []string) error {
	settings, err := o.loader.Load(o.Env)
	if err != nil {
		return err
	}
	if settings.Shared() {
		return usagef("the demo has a database of its own: remove the setting of --database-url")
	}
	// A demo whose terminal is closed removes its directory, unless nohup started it.
	var hangup []os.Signal
	if !signal.Ignored(syscall.SIGHUP) {
		hangup = []os.Signal{syscall.SIGHUP}
	}
	signals := notify(hangup...)
	defer signal.Stop(signals)
	defer outliveReaders()()
	return demo.Run(c.Context(), demo.Config{
		Settings: settings, Out: o.Out, Err: o.Err, Env: o.Env, Version: o.version, Tour: o.tour, NoTraffic: o.noTraffic, Events: allEvents(),
	}, signals)
}
