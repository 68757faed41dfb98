package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/server"
)

// get answers with the status of a GET on a connection of its own, 0 if there
// is none.
func get(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// refuses reports whether nothing listens at url. It sends no request: one that
// came just before the end would be one more to wait for.
func refuses(url string) bool {
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err == nil {
		_ = c.Close()
	}
	return err != nil
}

// patience is how long a test waits for something that must come about; it
// bounds a failure alone.
const patience = 2 * time.Minute

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// slowUpstream answers when it is told to; begun tells that a request is there.
func slowUpstream(t *testing.T) (url string, begun <-chan struct{}, finish chan<- struct{}) {
	t.Helper()
	b, f := make(chan struct{}, 1), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b <- struct{}{}
		select {
		case <-f:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(s.Close)
	return s.URL, b, f
}

// publicGateway makes a gateway before upstream whose one route needs no key.
func publicGateway(t *testing.T, api *client.Client, upstream string) {
	t.Helper()
	g, err := api.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: upstream})
	if err != nil {
		t.Fatal(err)
	}
	auth := client.CreateRouteRequestAuthNone
	if _, err := api.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: "/*", Methods: []string{"GET"}, Auth: &auth}); err != nil {
		t.Fatal(err)
	}
}

// Guarantee: in a drain /readyz is 503 while the listeners of both planes are
// closed, what runs ends whole, and only then does the server end (contract,
// section 1).
func TestDrain(t *testing.T) {
	s := keygatetest.Start(t)
	upstream, begun, finish := slowUpstream(t)
	publicGateway(t, s.Admin, upstream)
	if got := get(t, s.OpsURL()+"/readyz"); got != http.StatusOK {
		t.Fatalf("/readyz = %d before the drain", got)
	}
	answer := make(chan string, 1)
	gatewayURL, adminURL, opsURL := s.GatewayURL(), s.AdminURL(), s.OpsURL()
	go func() {
		res, err := http.Get(gatewayURL + "/x")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			answer <- err.Error()
			return
		}
		answer <- string(body)
	}()
	<-begun
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		stopped <- s.Running().Stop(ctx)
	}()
	until(t, "/readyz is 503", func() bool { return get(t, opsURL+"/readyz") == http.StatusServiceUnavailable })
	if got := get(t, opsURL+"/livez"); got != http.StatusOK {
		t.Errorf("/livez = %d in the drain", got)
	}
	until(t, "both planes refuse connections", func() bool { return refuses(gatewayURL) && refuses(adminURL) })
	select {
	case err := <-stopped:
		t.Fatalf("ended before the request: %v", err)
	default:
	}
	close(finish)
	if got := <-answer; got != "done" {
		t.Errorf("the request that ran got %q", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	if got := get(t, opsURL+"/livez"); got != 0 {
		t.Errorf("/livez = %d after the end", got)
	}
}

// settings returns the settings of a server on free ports.
func settings(t *testing.T, dir string, more ...string) *config.Config {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	loader := config.Register(fs)
	args := append([]string{"--data-dir", dir, "--gateway-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0"}, more...)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	c, err := loader.Load(func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs a server until the test's signals end it.
func run(t *testing.T, c *config.Config) (s *server.Server, api *client.Client, signals chan os.Signal, ended chan error) {
	t.Helper()
	signals, ended = make(chan os.Signal, 2), make(chan error, 1)
	ready := make(chan *server.Server, 1)
	go func() {
		ended <- server.Run(context.Background(), server.Config{Settings: c}, signals, func(s *server.Server) error {
			ready <- s
			return nil
		})
	}()
	select {
	case s = <-ready:
	case err := <-ended:
		t.Fatalf("did not start: %v", err)
	}
	key, err := os.ReadFile(c.AdminKeyFile())
	if err != nil {
		t.Fatal(err)
	}
	api, err = client.New(client.Config{URL: "http://" + s.AdminAddr(), Key: strings.TrimSpace(string(key))})
	if err != nil {
		t.Fatal(err)
	}
	return s, api, signals, ended
}

// Guarantee: a signal ends the server without an error, even if what runs must
// be cut off at the end of --drain-timeout; a second signal ends it at once.
func TestSignals(t *testing.T) {
	for _, tc := range []struct {
		name   string
		flags  []string
		second bool
		want   error
	}{
		{"what runs is cut off by the time-out", []string{"--drain-timeout", "50ms"}, false, nil},
		{"no time at all", []string{"--drain-timeout", "0s"}, false, nil},
		{"a second signal", []string{"--drain-timeout", "1h"}, true, server.ErrInterrupted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, api, signals, ended := run(t, settings(t, t.TempDir(), tc.flags...))
			upstream, begun, finish := slowUpstream(t)
			publicGateway(t, api, upstream)
			go func() {
				if res, err := http.Get("http://" + s.GatewayAddr() + "/x"); err == nil {
					_ = res.Body.Close()
				}
			}()
			<-begun
			signals <- syscall.SIGTERM
			if tc.second {
				until(t, "draining", func() bool { return get(t, "http://"+s.OpsAddr()+"/readyz") == http.StatusServiceUnavailable })
				// One that comes at once is the first over again, so they keep coming.
				again := time.NewTicker(20 * time.Millisecond)
				defer again.Stop()
				over := make(chan struct{})
				defer close(over)
				go func() {
					for {
						select {
						case <-over:
							return
						case <-again.C:
							select {
							case signals <- syscall.SIGTERM:
							default:
							}
						}
					}
				}()
			}
			if err := <-ended; !errors.Is(err, tc.want) {
				t.Errorf("ended with %v, want %v", err, tc.want)
			}
			close(finish)
		})
	}
}

// Guarantee: a second server on a data directory is refused and disturbs
// nothing; so is one whose address is taken, before it makes a store.
func TestRefusedStart(t *testing.T) {
	s := keygatetest.Start(t)
	if _, err := server.Start(t.Context(), server.Config{Settings: settings(t, s.DataDir)}); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("second server: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := settings(t, t.TempDir(), "--ops-addr", l.Addr().String())
	if _, err := server.Start(t.Context(), server.Config{Settings: c}); err == nil || !strings.Contains(err.Error(), "--ops-addr") {
		t.Errorf("address taken: %v", err)
	}
	if _, err := os.Stat(c.DatabaseFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a server that could not start made a store: %v", err)
	}
	if _, err := s.Admin.Account(t.Context()); err != nil {
		t.Errorf("the first server was disturbed: %v", err)
	}
}

// Guarantee: what was made survives a restart, and the first start happens
// once.
func TestRestart(t *testing.T) {
	s := keygatetest.Start(t)
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "n", Scope: "read"})
	if err != nil {
		t.Fatal(err)
	}
	s.Restart()
	got, err := s.Admin.Key(t.Context(), k.KeyID)
	if err != nil || got.Name != "n" {
		t.Errorf("key %+v, error %v", got, err)
	}
	n := 0
	for _, err := range s.Admin.Keys(t.Context(), client.KeyFilter{Level: "account"}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d account-level keys after a restart, want 1", n)
	}
}

// Guarantee: what an offline command writes beside a running server is in force
// soon, on the management API as on the data plane.
func TestOfflineAccount(t *testing.T) {
	s := keygatetest.Start(t)
	made, err := server.CreateAccount(t.Context(), settings(t, s.DataDir), nil, "acme", "starter", []string{"*.acme.example"})
	if err != nil {
		t.Fatal(err)
	}
	api := s.Client(made.Key)
	until(t, "the account's key is in force", func() bool {
		a, err := api.Account(t.Context())
		return err == nil && a.AccountID == made.AccountID && a.Plan == client.AccountPlanStarter
	})
	if _, err := server.CreateAccount(t.Context(), settings(t, t.TempDir()+"/none"), nil, "x", "starter", nil); err == nil {
		t.Error("an account was made in a directory without a store")
	}
}

// Guarantee: the installation's settings are told to the operator with their
// sources.
func TestSettings(t *testing.T) {
	s := keygatetest.Start(t, "--drain-timeout", "5s")
	got, err := s.Admin.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, x := range got.Settings {
		found[x.Name] = x.Value + " " + string(x.Source)
	}
	if found["drain-timeout"] != "5s flag" || found["gateway-domain"] != "localhost default" {
		t.Errorf("settings %v", found)
	}
}

// Guarantee: /metrics counts decisions by their outcome and management calls
// by their status.
func TestMetrics(t *testing.T) {
	s := keygatetest.Start(t)
	up := keygatetest.NewUpstream(t)
	publicGateway(t, s.Admin, up.URL)
	s.Through("", http.MethodGet, "/x", "", "")
	s.Through("nobody.example", http.MethodGet, "/../x", "", "")
	s.Call(http.MethodGet, "/v1/account", "", "")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.OpsURL()+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`keygate_gateway_decisions_total{outcome="forwarded"} 1`, `keygate_gateway_decisions_total{outcome="invalid_request"} 1`,
		`keygate_http_requests_total{plane="admin",status="4xx"} 1`, `keygate_build_info{`,
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// Guarantee: a store without the key that sealed its secrets is not opened, and
// no other key is put where the right one must be restored.
func TestMissingSecretKey(t *testing.T) {
	s := keygatetest.Start(t)
	s.Stop()
	path := filepath.Join(s.DataDir, "secret.key")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err := server.Start(t.Context(), server.Config{Settings: settings(t, s.DataDir)})
	if err == nil || !strings.Contains(err.Error(), "restore the file from a backup") || !strings.Contains(err.Error(), path) {
		t.Errorf("start: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a new key was made: %v", err)
	}
}
