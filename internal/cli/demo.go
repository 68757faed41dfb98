package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/telemetry"
)

type demoRun struct {
	*app
	loader    *config.Loader
	tour      bool
	noTraffic bool

	sample         *http.Server
	events         *demoEvents
	hooks, billing *receiver    // billing is nil without sample traffic
	traffic        *demoTraffic // nil until prepare starts it
}

func newDemo(a *app) *cobra.Command {
	o := &demoRun{app: a}
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

func (o *demoRun) run(c *cobra.Command, _ []string) (err error) {
	settings, err := o.loader.Load(o.Env)
	if err != nil {
		return err
	}
	if settings.Shared() {
		return usagef("the demo has a database of its own: remove the setting of --database-url")
	}
	settings.AdminKey = "" // the demo shows its key, and must not show a real one
	if settings.Origin("data-dir").Kind == config.Default {
		dir, err := os.MkdirTemp("", "keygate-demo-")
		if err != nil {
			return fmt.Errorf("create the demo's directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		settings.UseDataDir(filepath.Join(dir, "data"))
	}
	if settings.Origin("log-level").Kind == config.Default {
		settings.LogLevel = "warn" // so that log lines do not bury the printed commands
		if !o.noTraffic {
			settings.LogLevel = "error" // some of the sample traffic fails, which is a warning
		}
	}
	if err := settings.UseWebhookBackoff(demoBackoff); err != nil {
		return err
	}
	settings.WebhookAllowNetwork = append(settings.WebhookAllowNetwork, netip.MustParsePrefix("127.0.0.0/8"))
	defer func() { err = errors.Join(err, o.close(c.Context())) }()
	if err := o.startServices(c.Context()); err != nil {
		return err
	}

	// A demo whose terminal is closed removes its directory, unless nohup started it.
	var hangup []os.Signal
	if !signal.Ignored(syscall.SIGHUP) {
		hangup = []os.Signal{syscall.SIGHUP}
	}
	signals := notify(hangup...)
	defer signal.Stop(signals)
	defer outliveReaders()()
	output := telemetry.NewOutput(o.Err)
	return server.Run(c.Context(), server.Config{
		Settings: settings, Log: telemetry.NewLogger(output, settings.LogLevel, settings.LogFormat), LogLost: output.Lost, Version: o.version, Env: o.Env,
	}, signals, func(s *server.Server) error {
		defer o.events.begin() // print early events after the output of prepare
		return o.prepare(c.Context(), settings, s)
	})
}

// startServices starts the sample service and the webhook receivers, which close stops.
func (o *demoRun) startServices(ctx context.Context) (err error) {
	if o.sample, err = startSample(ctx); err != nil {
		return err
	}
	o.events = newDemoEvents(o.Out, o.tour)
	if o.hooks, err = startReceiver(ctx, receiverConfig{Name: demoHooks, Handle: o.events.handle}); err != nil || o.noTraffic {
		return err
	}
	o.billing, err = startReceiver(ctx, receiverConfig{Name: demoBilling, Handle: handleBilling})
	return err
}

// close stops everything of the demo except the server.
func (o *demoRun) close(ctx context.Context) (err error) {
	if o.traffic != nil {
		err = o.traffic.Stop(context.WithoutCancel(ctx)) // at once: its calls end with it
	}
	for _, r := range []*receiver{o.billing, o.hooks} {
		if r != nil {
			err = errors.Join(err, r.Close())
		}
	}
	if o.sample != nil {
		err = errors.Join(err, o.sample.Close())
	}
	return err
}

// startSample serves the sample service on a free port of the loopback interface.
func startSample(ctx context.Context) (*http.Server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the sample service: %w", err)
	}
	s := &http.Server{Addr: l.Addr().String(), Handler: sampleService(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }() // until run calls Close
	return s, nil
}

// prepare registers the receivers, creates the gateway and the keys, prints the commands to try and
// starts the sample traffic.
func (o *demoRun) prepare(ctx context.Context, settings *config.Config, s *server.Server) error {
	admin, gateway := s.AdminURL(), s.GatewayURL()
	key, err := os.ReadFile(settings.AdminKeyFile())
	if err != nil {
		return fmt.Errorf("read the admin key: %w", err)
	}
	api, err := client.New(client.Config{URL: admin, Key: strings.TrimSpace(string(key)), Source: "cli", UserAgent: "keygate-demo/" + o.version})
	if err != nil {
		return err
	}
	if err := registerDemo(ctx, api, o.hooks, o.billing); err != nil {
		return fmt.Errorf("register the demo's webhook receivers: %w", err)
	}
	upstream := "http://" + o.sample.Addr
	g, err := o.createGateway(ctx, api, upstream)
	if err != nil {
		return fmt.Errorf("create the demo's gateway: %w", err)
	}
	limit, owner := "60/min", "you"
	k, err := api.CreateKey(ctx, client.CreateKeyRequest{Name: "demo", Scope: "write", RateLimit: &client.KeyRateLimit{Rate: limit}, Owner: &owner, GatewayID: &g.GatewayID})
	if err != nil {
		return fmt.Errorf("create the demo's key: %w", err)
	}
	spec := filepath.Join(filepath.Dir(settings.AdminKeyFile()), "sample-openapi.yaml")
	if err := os.WriteFile(spec, []byte(sampleDocument), 0o600); err != nil {
		return fmt.Errorf("write the sample service's document: %w", err)
	}
	if err := o.startTraffic(ctx, api, g, gateway); err != nil {
		return err
	}
	t := &tour{
		program: programName(), gateway: gateway, host: g.Hostname, admin: admin, ops: s.OpsURL(),
		adminKey: settings.AdminKeyFile(), gatewayID: g.GatewayID, keyPrefix: k.KeyPrefix, key: k.Secret, spec: spec, upstream: upstream,
	}
	if !g.Default { // in a data directory that has gateways already
		t.gateway = t.byName()
	}
	if o.tour {
		return t.printAll(o.Out)
	}
	return t.print(o.Out)
}

// createGateway creates the gateway and pushes the sample service's document: with sample traffic,
// first one with another limit, so that there are two revisions to compare.
func (o *demoRun) createGateway(ctx context.Context, api *client.Client, upstream string) (*client.Gateway, error) {
	g, err := api.CreateGateway(ctx, client.CreateGatewayRequest{
		Name: "demo", UpstreamURL: upstream, GlobalRateLimit: &client.GlobalLimitInput{Sustained: "600/min"},
	})
	if err != nil {
		return nil, err
	}
	documents := []string{sampleDocument}
	if !o.noTraffic {
		documents = []string{strings.Replace(sampleDocument, "{sustained: 10/min}", "{sustained: 60/min}", 1), sampleDocument}
	}
	for _, d := range documents {
		if _, err := api.PushSpec(ctx, g.GatewayID, []byte(d), false); err != nil {
			return nil, fmt.Errorf("push the sample service's document: %w", err)
		}
	}
	return g, nil
}

// startTraffic starts the sample traffic, unless --no-traffic turns it off.
func (o *demoRun) startTraffic(ctx context.Context, api *client.Client, g *client.Gateway, gateway string) error {
	if o.noTraffic {
		return nil
	}
	traffic, err := newDemoTraffic(ctx, api, g, gateway)
	if err != nil {
		return err
	}
	o.traffic, o.events.quiet = traffic, traffic.background
	return traffic.Start()
}

// programName returns a path that runs this program from the current directory.
func programName() string {
	path, err := os.Executable()
	if err != nil {
		return "keygate"
	}
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, path); err == nil && !strings.HasPrefix(rel, "..") {
			return "./" + rel
		}
	}
	return path
}
