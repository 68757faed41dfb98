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
}

func newDemo(a *app) *cobra.Command {
	o := &demoRun{app: a}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run a server with a sample service behind it, and print commands to try",
		Long: `Run a server in a temporary directory, with a sample service, a gateway in front of
it and a key, and print commands to try. It needs no network. It takes the same flags
and environment variables as serve. Ctrl-C stops the demo and removes everything.`,
		Args: noArgs,
		RunE: o.run,
	}
	o.loader = config.Register(c.Flags())
	return c
}

func (o *demoRun) run(c *cobra.Command, _ []string) (err error) {
	settings, err := o.loader.Load(o.Env)
	if err != nil {
		return err
	}
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
	events := newDemoEvents(o.Out)
	hooks, err := startReceiver(c.Context(), receiverConfig{Name: demoHooks, Handle: events.handle})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hooks.Close()) }()
	settings.WebhookAllowNetwork = append(settings.WebhookAllowNetwork, netip.MustParsePrefix("127.0.0.0/8"))

	signals := notify()
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
	k, err := api.CreateKey(ctx, client.CreateKeyRequest{Name: "demo", Scope: "write", RateLimit: &limit, Owner: &owner, GatewayID: &g.GatewayID})
	if err != nil {
		return fmt.Errorf("create the demo's key: %w", err)
	}
	spec := filepath.Join(filepath.Dir(settings.AdminKeyFile()), "sample-openapi.yaml")
	if err := os.WriteFile(spec, []byte(sampleDocument), 0o600); err != nil {
		return fmt.Errorf("write the sample service's document: %w", err)
	}
	return o.print(&tour{
		program: programName(), gateway: scheme(settings.TLSCert) + reachable(s.GatewayAddr()), host: g.Hostname, admin: admin, ops: "http://" + reachable(s.OpsAddr()),
		adminKey: settings.AdminKeyFile(), gatewayID: g.GatewayID, keyID: k.KeyID, key: k.Secret, spec: spec, upstream: upstream,
	})
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

// tour holds the values that the printed commands contain.
type tour struct {
	program, gateway, host, admin, ops, adminKey, gatewayID, keyID, key, spec, upstream string
}

func (o *demoRun) print(t *tour) error {
	_, err := fmt.Fprintf(o.Out, `Keygate is running, with a sample service behind it.

  data plane      %[1]s  (also %[2]s)
  management API  %[3]s
  operators       %[4]s/readyz, %[4]s/metrics
  sample service  %[5]s

Paste these into another terminal, one after the other.

# Used by all commands: a caller's key, and your key for the management API.
export KEY=%[6]s
export KEYGATE_URL=%[3]s
export KEYGATE_API_KEY=$(cat %[7]s)

# Call the service through the gateway.
curl -i -H "Authorization: Bearer $KEY" %[1]s/orders

# Show what the service receives about the caller.
curl -H "Authorization: Bearer $KEY" %[1]s/whoami

# Without a key: 401. A public route needs no key: 200.
curl -i %[1]s/orders
curl -i %[1]s/health

# A path that is not in the service's OpenAPI document: 404. A method that is not: 405.
curl -i -H "Authorization: Bearer $KEY" %[1]s/secrets
curl -i -X PATCH -H "Authorization: Bearer $KEY" %[1]s/orders

# Exceed a limit: this route allows 5 requests a minute, so the sixth is 429.
for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%%{http_code}\n' -H "Authorization: Bearer $KEY" %[1]s/orders/1; done

# The audit log, the traffic report, and the refused requests.
%[8]s audit-log --gateway %[9]s
%[8]s traffic --group-by route
%[8]s explain

# Why the last of them was refused; and the current level of every limit.
%[8]s explain $(%[8]s explain --limit 1 -o json | jq -r '.[0].request_id')
%[8]s limits show %[9]s

# Check that no record is missing: each of these counters is 0, and the hash chain of
# the audit log is intact.
curl -s %[4]s/metrics | grep '_lost_total '
%[8]s audit-log verify --data-dir %[12]s

# List what there is.
%[8]s gateways list
%[8]s routes list --gateway %[9]s
%[8]s keys list

# Push the service's document again (nothing changes), and list the revisions.
%[8]s spec push --gateway %[9]s %[10]s
%[8]s spec revisions --gateway %[9]s

# Create a key that may only read orders, and replace the first key with a new one.
%[8]s keys create --name reader --scope read:orders -o json
%[8]s keys rotate --key-id %[11]s --overlap-days 7

# Revoke the key: the next call with it is 401.
%[8]s keys revoke %[11]s
curl -i -H "Authorization: Bearer $KEY" %[1]s/orders

# Events, and their deliveries to the webhook receiver that prints the lines below.
%[8]s events list
%[8]s webhooks list
%[8]s deliveries list

# Receive events in another terminal. --forward-to URL forwards them to your program.
%[8]s webhooks listen

Ctrl-C stops the demo and removes its data.

Events received by the demo's own webhook receiver, each with a verified signature:
`, t.gateway, t.byName(), t.admin, t.ops, t.upstream, t.key, t.adminKey, t.program, t.gatewayID, t.spec, t.keyID, filepath.Dir(t.adminKey))
	return err
}

// scheme returns the start of the URL of a listener: https if it has a certificate,
// http if cert is "".
func scheme(cert string) string {
	if cert == "" {
		return "http://"
	}
	return "https://"
}

// byName returns the data plane's URL with the gateway's hostname.
func (t *tour) byName() string {
	scheme, address, _ := strings.Cut(t.gateway, "://")
	_, port, _ := net.SplitHostPort(address) // a listener's address always has a port
	return scheme + "://" + net.JoinHostPort(t.host, port)
}
