package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/memlimit"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/systemd"
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
		Long: `Run a server: the data plane, the management API with the dashboard, and an address
for operators. It needs no other service and stores everything in --data-dir.

Each flag can also be set by an environment variable, KEYGATE_ followed by its name in
capitals with _ for -, and by a key of the file that --config or KEYGATE_CONFIG names.
A flag takes precedence over the environment, and the environment over the file.

The first start writes a key for the management API to admin.key in --data-dir. On
SIGTERM or SIGINT the server finishes the work in progress within --drain-timeout and
exits. A second signal stops it at once. SIGHUP lets it read its certificates again and
open its log files again.`,
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
	sockets, err := systemd.Sockets(server.SocketNames()...)
	if err != nil {
		return err
	}
	signals := notify()
	defer signal.Stop(signals)
	defer outliveReaders()()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	_, terminal := terminal.IsTerminal(o.Out)
	output := telemetry.NewOutput(o.Err)
	log := telemetry.NewLogger(output, settings.LogLevel, settings.LogFormat)
	defer telemetry.TakeStandardLog(log)()
	if limit, ok := memlimit.Apply(os.DirFS("/"), o.Env); ok {
		log.Info("the memory limit of Go is nine tenths of that of the cgroup; GOMEMLIMIT sets another", "bytes", limit)
	}
	alive, stop := context.WithCancel(c.Context())
	defer stop()
	return server.Run(c.Context(), server.Config{
		Settings: settings, Log: log, LogLost: output.Lost, Reload: reload, Sockets: sockets, Stopping: func() { systemd.Stopping(log) },
		Out: o.Out, OutIsTerminal: terminal, Version: o.version, Env: o.Env,
	}, signals, func(s *server.Server) error {
		systemd.Ready(alive, s.OpsURL()+"/livez", log)
		if terminal { // the log has the address as well
			fmt.Fprintf(o.Out, "The dashboard is at %s/\n", s.AdminURL())
		}
		return nil
	})
}

// outliveReaders makes a write to a pipe without a reader an error. Otherwise the Go runtime ends the
// process by SIGPIPE, if the pipe is standard output or standard error. undo restores this.
func outliveReaders() (undo func()) {
	broken := make(chan os.Signal, 1) // nobody receives: the write returns an error as well
	signal.Notify(broken, syscall.SIGPIPE)
	return func() { signal.Stop(broken) }
}

// notify returns a channel that receives the signals that stop a server, and the signals in more.
func notify(more ...os.Signal) chan os.Signal {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, append(more, syscall.SIGINT, syscall.SIGTERM)...)
	return signals
}
