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
	loader *config.Loader
	tour   bool
}

func newDemo(a *app) *cobra.Command {
	o := &demoRun{app: a}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run a server with a sample service behind it, and print commands to try",
		Long: `Run a server in a temporary directory, with a sample service, a gateway in front of
it and a key, and print commands to try. It needs no network. It takes the same flags
and environment variables as serve. Ctrl-C stops the demo and removes everything.

With --tour it prints many more commands, which show everything that Keygate does.`,
		Args: noArgs,
		RunE: o.run,
	}
	c.Flags().BoolVar(&o.tour, "tour", false, "print commands for everything that Keygate does")
	o.loader = config.Register(c.Flags())
	return c
}

func (o *demoRun) run(c *cobra.Command, _ []string) (err error) {
	settings, err := o.loader.Load(o.Env)
	if err != nil {
		return err
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
	}
	sample, err := startSample(c.Context())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sample.Close()) }()
	events := newDemoEvents(o.Out, o.tour)
	hooks, err := startReceiver(c.Context(), receiverConfig{Name: demoHooks, Handle: events.handle})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hooks.Close()) }()
	settings.WebhookAllowNetwork = append(settings.WebhookAllowNetwork, netip.MustParsePrefix("127.0.0.0/8"))

	// A demo whose terminal is closed removes its directory, unless nohup started it.
	var hangup []os.Signal
	if !signal.Ignored(syscall.SIGHUP) {
		hangup = []os.Signal{syscall.SIGHUP}
	}
	signals := notify(hangup...)
	defer signal.Stop(signals)
	return server.Run(c.Context(), server.Config{
		Settings: settings, Log: telemetry.NewLogger(o.Err, settings.LogLevel, settings.LogFormat), Version: o.Version, Env: o.Env,
	}, signals, func(s *server.Server) error {
		defer events.begin() // print early events after the output of prepare
		return o.prepare(c.Context(), settings, s, "http://"+sample.Addr, hooks)
	})
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

// prepare registers the receiver, creates the gateway and the key, and prints the
// commands to try.
func (o *demoRun) prepare(ctx context.Context, settings *config.Config, s *server.Server, upstream string, hooks *receiver) error {
	admin := scheme(settings.AdminTLSCert) + reachable(s.AdminAddr())
	key, err := os.ReadFile(settings.AdminKeyFile())
	if err != nil {
		return fmt.Errorf("read the admin key: %w", err)
	}
	api, err := client.New(client.Config{URL: admin, Key: strings.TrimSpace(string(key)), Source: "cli", UserAgent: "keygate-demo/" + o.Version})
	if err != nil {
		return err
	}
	if err := registerDemo(ctx, api, hooks); err != nil {
		return fmt.Errorf("register the demo's webhook receiver: %w", err)
	}
	g, err := api.CreateGateway(ctx, client.CreateGatewayRequest{
		Name: "demo", UpstreamURL: upstream, GlobalRateLimit: &client.GlobalLimitInput{Sustained: "600/min"},
	})
	if err != nil {
		return fmt.Errorf("create the demo's gateway: %w", err)
	}
	if _, err := api.PushSpec(ctx, g.GatewayID, []byte(sampleDocument), false); err != nil {
		return fmt.Errorf("push the sample service's document: %w", err)
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
	t := &tour{
		program: programName(), gateway: scheme(settings.TLSCert) + reachable(s.GatewayAddr()), host: g.Hostname, admin: admin, ops: "http://" + reachable(s.OpsAddr()),
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

// reachable returns the address at which a client reaches the listener at addr. A
// wildcard address becomes the loopback address.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
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

// scheme returns the start of the URL of a listener: https if it has a certificate,
// http if cert is "".
func scheme(cert string) string {
	if cert == "" {
		return "http://"
	}
	return "https://"
}
