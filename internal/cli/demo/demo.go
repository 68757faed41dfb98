// Package demo runs a server with a sample service behind it, sample traffic, and webhook receivers that print the
// events, and prints commands to try.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/receiver"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/telemetry"
)

// Config configures a demo.
type Config struct {
	Settings  *config.Config // of the server; the demo changes them
	Out       io.Writer      // the commands to try, and events
	Err       io.Writer      // the log of the server
	Env       func(name string) (string, bool)
	Version   string   // of the program
	Tour      bool     // print commands for everything that Keygate does
	NoTraffic bool     // make no calls
	Events    []string // the types of events that are printed
}

// run is a demo that runs.
type run struct {
	cfg            Config
	sample         *http.Server
	events         *demoEvents
	hooks, billing *receiver.Receiver // billing is nil without sample traffic
	traffic        *demoTraffic       // nil until prepare starts it
}

// Run runs a demo until one of the signals arrives or ctx ends. It removes the directory of its data at the end, unless
// the settings name one.
func Run(ctx context.Context, cfg Config, signals chan os.Signal) (err error) {
	r, settings := &run{cfg: cfg}, cfg.Settings
	settings.AdminKey = "" // the demo prints its key, which must not be a real one
	if settings.Origin("data-dir").Kind == config.Default {
		var dir string
		if dir, err = os.MkdirTemp("", "keygate-demo-"); err != nil {
			return fmt.Errorf("create the demo's directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		settings.UseDataDir(filepath.Join(dir, "data"))
	}
	if settings.Origin("log-level").Kind == config.Default {
		settings.LogLevel = "warn" // so that log lines do not bury the printed commands
		if !cfg.NoTraffic {
			settings.LogLevel = "error" // some of the sample traffic fails, which is a warning
		}
	}
	if err := settings.UseWebhookBackoff(demoBackoff); err != nil {
		return err
	}
	settings.WebhookAllowNetwork = append(settings.WebhookAllowNetwork, netip.MustParsePrefix("127.0.0.0/8"))
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	if err := r.startServices(ctx); err != nil {
		return err
	}
	output := telemetry.NewOutput(cfg.Err)
	log := telemetry.NewLogger(output, settings.LogLevel, settings.LogFormat)
	defer telemetry.TakeStandardLog(log)()
	return server.Run(ctx, server.Config{
		Settings: settings, Log: log, LogLost: output.Lost, Version: cfg.Version, Env: cfg.Env,
	}, signals, func(s *server.Server) error {
		defer r.events.begin() // print early events after the output of prepare
		return r.prepare(ctx, s)
	})
}

// startServices starts the sample service and the webhook receivers, which close stops.
func (r *run) startServices(ctx context.Context) (err error) {
	if r.sample, err = startSample(ctx); err != nil {
		return err
	}
	r.events = newDemoEvents(r.cfg.Out, r.cfg.Tour)
	if r.hooks, err = receiver.Start(ctx, receiver.Config{Name: demoHooks, Handle: r.events.handle}); err != nil || r.cfg.NoTraffic {
		return err
	}
	r.billing, err = receiver.Start(ctx, receiver.Config{Name: demoBilling, Handle: handleBilling})
	return err
}

// close stops everything of the demo except the server.
func (r *run) close(ctx context.Context) (err error) {
	if r.traffic != nil {
		err = r.traffic.Stop(context.WithoutCancel(ctx)) // at once: its calls end with it
	}
	for _, one := range []*receiver.Receiver{r.billing, r.hooks} {
		if one != nil {
			err = errors.Join(err, one.Close())
		}
	}
	if r.sample != nil {
		err = errors.Join(err, r.sample.Close())
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
func (r *run) prepare(ctx context.Context, s *server.Server) error {
	admin, gateway := s.AdminURL(), s.GatewayURL()
	key, err := os.ReadFile(r.cfg.Settings.AdminKeyFile())
	if err != nil {
		return fmt.Errorf("read the admin key: %w", err)
	}
	api, err := client.New(client.Config{URL: admin, Key: strings.TrimSpace(string(key)), Source: "cli", UserAgent: "keygate-demo/" + r.cfg.Version})
	if err != nil {
		return err
	}
	if err := registerDemo(ctx, api, r.cfg.Events, r.hooks, r.billing); err != nil {
		return fmt.Errorf("register the demo's webhook receivers: %w", err)
	}
	upstream := "http://" + r.sample.Addr
	g, err := r.createGateway(ctx, api, upstream)
	if err != nil {
		return fmt.Errorf("create the demo's gateway: %w", err)
	}
	limit, owner := "60/min", "you"
	k, err := api.CreateKey(ctx, client.CreateKeyRequest{Name: "demo", Scope: "write", RateLimit: &client.KeyRateLimit{Rate: limit}, Owner: &owner, GatewayID: &g.GatewayID})
	if err != nil {
		return fmt.Errorf("create the demo's key: %w", err)
	}
	spec := filepath.Join(filepath.Dir(r.cfg.Settings.AdminKeyFile()), "sample-openapi.yaml")
	if err := os.WriteFile(spec, []byte(sampleDocument), 0o600); err != nil {
		return fmt.Errorf("write the sample service's document: %w", err)
	}
	if err := r.startTraffic(ctx, api, g, gateway); err != nil {
		return err
	}
	t := &tour{
		program: programName(), gateway: gateway, host: g.Hostname, admin: admin, ops: s.OpsURL(),
		adminKey: r.cfg.Settings.AdminKeyFile(), gatewayID: g.GatewayID, keyPrefix: k.KeyPrefix, key: k.Secret, spec: spec, upstream: upstream,
	}
	if !g.Default { // in a data directory that has gateways already
		t.gateway = t.byName()
	}
	if r.cfg.Tour {
		return t.printAll(r.cfg.Out)
	}
	return t.print(r.cfg.Out)
}

// createGateway creates the gateway and pushes the sample service's document: with sample traffic,
// first one with another limit, so that there are two revisions to compare.
func (r *run) createGateway(ctx context.Context, api *client.Client, upstream string) (*client.Gateway, error) {
	g, err := api.CreateGateway(ctx, client.CreateGatewayRequest{
		Name: "demo", UpstreamURL: upstream, GlobalRateLimit: &client.GlobalLimitInput{Sustained: "600/min"},
	})
	if err != nil {
		return nil, err
	}
	documents := []string{sampleDocument}
	if !r.cfg.NoTraffic {
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
func (r *run) startTraffic(ctx context.Context, api *client.Client, g *client.Gateway, gateway string) error {
	if r.cfg.NoTraffic {
		return nil
	}
	traffic, err := newDemoTraffic(ctx, api, g, gateway)
	if err != nil {
		return err
	}
	r.traffic, r.events.quiet = traffic, traffic.background
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
