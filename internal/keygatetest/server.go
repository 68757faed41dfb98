// Package keygatetest starts a whole server in the process of a test, on free ports of
// 127.0.0.1 and with its own data directory, for end-to-end tests.
package keygatetest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/acme/order"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/keygatetest/dnstest"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/telemetry"
)

// Server is a server for a test. It stops when the test ends.
type Server struct {
	t       testing.TB
	options Options

	// DataDir is the data directory, which a Restart keeps.
	DataDir string
	// AdminKey is the key that the first start created.
	AdminKey string
	// Admin is a client of the management API with AdminKey.
	Admin *client.Client

	running *server.Server
}

// Options are the options of StartWith.
type Options struct {
	// Args holds flags of serve. StartWith itself sets the flags for the addresses and the data
	// directory.
	Args []string
	// Env holds environment variables of OpenTelemetry.
	Env map[string]string
	// Settings holds environment variables of settings. If it has KEYGATE_ADMIN_KEY, that is the
	// AdminKey.
	Settings map[string]string
	// From is the data directory of a server that has stopped, of which the server gets a copy, so
	// that it has the same accounts, gateways and keys.
	From string
	// Log receives the server's log as JSON, from level debug on. Nil means the
	// test's log, from level warn on.
	Log io.Writer
	// Resolver resolves the names of upstreams. Nil means the system's or, with --acme-email, one that finds no name.
	Resolver *net.Resolver
	// ACMEPorts are the ports at which hostnames have to lead to the server for a certificate. Zero means 80 and 443.
	ACMEPorts order.Ports
	// ACMEClient makes the requests to the certificate authority. Nil means one that trusts the system's authorities.
	ACMEClient *http.Client
}

// Start starts a server with flags of serve and returns when it is ready. It sets the
// flags of the addresses and the data directory itself.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartWith(t, Options{Args: args})
}

// StartWith starts a server with options and returns when it is ready.
func StartWith(t testing.TB, options Options) *Server {
	t.Helper()
	s := &Server{t: t, options: options, DataDir: filepath.Join(t.TempDir(), "data")}
	if options.From != "" {
		if err := os.CopyFS(s.DataDir, os.DirFS(options.From)); err != nil {
			t.Fatalf("copy a data directory: %v", err)
		}
		for _, name := range []string{"", "admin.key", "secret.key"} {
			if err := os.Chmod(filepath.Join(s.DataDir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.start()
	t.Cleanup(s.Stop)
	if s.AdminKey = options.Settings[config.AdminKeyVariable]; s.AdminKey != "" {
		if s.running.AdminAddr() != "" {
			s.Admin = s.Client(s.AdminKey)
		}
		return s
	}
	key, err := os.ReadFile(filepath.Join(s.DataDir, "admin.key"))
	if err != nil {
		t.Fatalf("read the admin key: %v", err)
	}
	s.AdminKey = strings.TrimSpace(string(key))
	s.Admin = s.Client(s.AdminKey)
	return s
}

func (s *Server) start() {
	s.t.Helper()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	loader := config.Register(flags)
	args := append([]string{
		"--data-dir", s.DataDir, "--gateway-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0",
	}, s.options.Args...)
	if err := flags.Parse(args); err != nil {
		s.t.Fatal(err)
	}
	settings, err := loader.Load(func(name string) (string, bool) {
		value, ok := s.options.Settings[name]
		return value, ok
	})
	if err != nil {
		s.t.Fatal(err)
	}
	resolver := s.options.Resolver
	if settings.ACME.On() {
		s.checkDirectory(settings.ACME.Directory)
		if resolver == nil {
			resolver = (&dnstest.Zone{}).Resolver()
		}
	}
	log := telemetry.NewLogger(logWriter{s.t}, "warn", "text")
	if s.options.Log != nil {
		log = telemetry.NewLogger(s.options.Log, "debug", "json")
	}
	env := func(name string) (string, bool) {
		value, ok := s.options.Env[name]
		return value, ok
	}
	if s.running, err = server.Start(context.WithoutCancel(s.t.Context()), server.Config{
		Settings: settings, Log: log, Env: env, Version: "test", Resolver: resolver, ACMEPorts: s.options.ACMEPorts, ACMEClient: s.options.ACMEClient,
	}); err != nil {
		s.t.Fatalf("start a server: %v", err)
	}
}

// checkDirectory ends a test that would ask a real certificate authority, as that of the default.
func (s *Server) checkDirectory(directory string) {
	s.t.Helper()
	u, err := url.Parse(directory)
	if err != nil {
		s.t.Fatal(err)
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err != nil || !addr.IsLoopback() {
		s.t.Fatalf("--acme-directory %s is not on this machine: name one of package acmetest", directory)
	}
}

// logWriter writes a server's log to the log of a test.
type logWriter struct{ t testing.TB }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// Stop drains and stops the server. It is idempotent.
func (s *Server) Stop() {
	s.t.Helper()
	if s.running == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := s.running.Stop(ctx); err != nil {
		s.t.Errorf("stop the server: %v", err)
	}
	s.running = nil
}

// Restart stops the server and starts it again with the same data directory. The
// addresses change.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.start()
	s.Admin = s.Client(s.AdminKey)
}

// Running returns the server itself.
func (s *Server) Running() *server.Server { return s.running }

// AdminURL returns the address of the management API.
func (s *Server) AdminURL() string { return "http://" + s.running.AdminAddr() }

// GatewayURL returns the address of the data plane.
func (s *Server) GatewayURL() string { return "http://" + s.running.GatewayAddr() }

// OpsURL returns the address of /livez, /readyz and /metrics.
func (s *Server) OpsURL() string { return "http://" + s.running.OpsAddr() }

// Client returns a client of the management API with the given key and no retries.
func (s *Server) Client(key string) *client.Client {
	s.t.Helper()
	c, err := client.New(client.Config{URL: s.AdminURL(), Key: key, Retries: -1})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// Response is an HTTP response with its whole body.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Call sends a request to the management API. header holds alternating names and
// values.
func (s *Server) Call(method, path, key, body string, header ...string) Response {
	s.t.Helper()
	return s.send(s.AdminURL(), "", method, path, key, body, header)
}

// Through sends a request to the data plane: to the gateway with this host name or, if
// host is "", to the default gateway. target is sent byte for byte.
func (s *Server) Through(host, method, target, key, body string, header ...string) Response {
	s.t.Helper()
	return s.send(s.GatewayURL(), host, method, target, key, body, header)
}

func (s *Server) send(base, host, method, target, key, body string, header []string) Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, base, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	path, query, _ := strings.Cut(target, "?")
	req.URL = &url.URL{Scheme: "http", Host: req.URL.Host, Opaque: path, RawQuery: query}
	if strings.HasPrefix(path, "//") { // net/http would read an authority here
		req.URL.Opaque = "//" + req.URL.Host + path
	}
	req.Host = host
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	// Keep no idle connections, which would delay the server's shutdown.
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: (&net.Dialer{}).DialContext}
	res, err := transport.RoundTrip(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, target, err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatalf("%s %s: read the response: %v", method, target, err)
	}
	return Response{res.StatusCode, res.Header, string(content)}
}
