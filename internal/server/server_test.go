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
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/server"
)

// get sends a GET request on a new connection and returns the status of the response, or
// 0 if there was no response.
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

// fetch returns the status and body of a page.
func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(content)
}

// refuses reports whether nothing listens at url. It sends no request, because a drain
// would wait for it.
func refuses(url string) bool {
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err == nil {
		_ = c.Close()
	}
	return err != nil
}

// slowUpstream starts an upstream that sends to started when a request has arrived, and
// responds to it once finish is closed.
func slowUpstream(t *testing.T) (url string, started <-chan struct{}, finish chan<- struct{}) {
	t.Helper()
	arrived, f := make(chan struct{}, 1), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-f:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(s.Close)
	return s.URL, arrived, f
}

// publicGateway creates a gateway in front of upstream with one route, which needs no key.
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

// Guarantee: during a drain /readyz is 503, both planes refuse connections, and requests
// in progress finish; only then does the server stop (contract, section 1).
func TestDrainFinishesRequests(t *testing.T) {
	s := keygatetest.Start(t)
	upstream, started, finish := slowUpstream(t)
	publicGateway(t, s.Admin, upstream)
	if got := get(t, s.OpsURL()+"/readyz"); got != http.StatusOK {
		t.Fatalf("/readyz before the drain: got status %d, want 200", got)
	}
	body := make(chan string, 1)
	gatewayURL, adminURL, opsURL := s.GatewayURL(), s.AdminURL(), s.OpsURL()
	go func() {
		res, err := http.Get(gatewayURL + "/x")
		if err != nil {
			body <- err.Error()
			return
		}
		defer res.Body.Close()
		content, err := io.ReadAll(res.Body)
		if err != nil {
			body <- err.Error()
			return
		}
		body <- string(content)
	}()
	<-started
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), awaittest.Timeout)
		defer cancel()
		stopped <- s.Running().Stop(ctx)
	}()
	awaittest.True(t, "/readyz is 503", func() bool { return get(t, opsURL+"/readyz") == http.StatusServiceUnavailable })
	if got := get(t, opsURL+"/livez"); got != http.StatusOK {
		t.Errorf("/livez during the drain: got status %d, want 200", got)
	}
	awaittest.True(t, "both planes refuse connections", func() bool { return refuses(gatewayURL) && refuses(adminURL) })
	select {
	case err := <-stopped:
		t.Fatalf("the server stopped before the request ended: %v", err)
	default:
	}
	close(finish)
	if got := <-body; got != "done" {
		t.Errorf("request in progress: got body %q, want done", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop: got error %v, want none", err)
	}
	if got := get(t, opsURL+"/livez"); got != 0 {
		t.Errorf("/livez after the stop: got status %d, want no response", got)
	}
}

// settings returns the settings of a server on free ports, with further flags.
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

// run runs a server. It stops when the test sends signals, and its result is sent to ended.
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
		t.Fatalf("the server did not start: %v", err)
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

// signalAgain sends signals until Run has returned, since a signal soon after the first counts as
// the same. It returns Run's result.
func signalAgain(signals chan<- os.Signal, ended <-chan error) error {
	resend := time.NewTicker(20 * time.Millisecond)
	defer resend.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-resend.C:
			select {
			case signals <- syscall.SIGTERM:
			default:
			}
		}
	}
}

// Guarantee: after a signal the server stops without an error, even if requests must be
// cut off at the end of --drain-timeout; a second signal stops it at once.
func TestSignalsStopTheServer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		flags  []string
		second bool
		want   error
	}{
		{"a request is cut off at the end of the drain timeout", []string{"--drain-timeout", "50ms"}, false, nil},
		{"a drain delay ends by itself", []string{"--drain-delay", "50ms", "--drain-timeout", "50ms"}, false, nil},
		{"a drain timeout of zero", []string{"--drain-timeout", "0s"}, false, nil},
		{"a second signal stops it at once", []string{"--drain-timeout", "1h"}, true, server.ErrInterrupted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, api, signals, ended := run(t, settings(t, t.TempDir(), tc.flags...))
			upstream, started, finish := slowUpstream(t)
			publicGateway(t, api, upstream)
			go func() {
				if res, err := http.Get("http://" + s.GatewayAddr() + "/x"); err == nil {
					_ = res.Body.Close()
				}
			}()
			<-started
			signals <- syscall.SIGTERM
			var err error
			if tc.second {
				awaittest.True(t, "draining", func() bool { return get(t, "http://"+s.OpsAddr()+"/readyz") == http.StatusServiceUnavailable })
				err = signalAgain(signals, ended)
			} else {
				err = <-ended
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("Run: got error %v, want %v", err, tc.want)
			}
			close(finish)
		})
	}
}

// Guarantee: during --drain-delay /readyz is 503 and both planes still serve new
// connections; a second signal ends the delay.
func TestDrainDelayServesNewConnections(t *testing.T) {
	s, api, signals, ended := run(t, settings(t, t.TempDir(), "--drain-delay", "1h"))
	upstream := keygatetest.NewUpstream(t)
	publicGateway(t, api, upstream.URL)
	signals <- syscall.SIGTERM
	awaittest.True(t, "/readyz is 503", func() bool { return get(t, "http://"+s.OpsAddr()+"/readyz") == http.StatusServiceUnavailable })
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for plane, url := range map[string]string{"data plane": "http://" + s.GatewayAddr() + "/x", "management API": "http://" + s.AdminAddr() + "/v1/openapi.json"} {
		res, err := fresh.Get(url)
		if err != nil {
			t.Fatalf("%s: %v", plane, err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: got status %d, want 200", plane, res.StatusCode)
		}
	}
	if err := signalAgain(signals, ended); !errors.Is(err, server.ErrInterrupted) {
		t.Errorf("Run: got error %v, want ErrInterrupted", err)
	}
}

// Guarantee: a second server on a data directory does not start and does not disturb the first; a
// server whose address is in use does not start and creates no store.
func TestConflictingServerDoesNotStart(t *testing.T) {
	s := keygatetest.Start(t)
	if _, err := server.Start(t.Context(), server.Config{Settings: settings(t, s.DataDir)}); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("second server: got error %v, want one about another server", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := settings(t, t.TempDir(), "--ops-addr", l.Addr().String())
	if _, err := server.Start(t.Context(), server.Config{Settings: c}); err == nil || !strings.Contains(err.Error(), "--ops-addr 127.0.0.1:") {
		t.Errorf("address in use: got error %v, want one that names --ops-addr", err)
	}
	if _, err := os.Stat(c.DatabaseFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("address in use: a store was created, or cannot be checked: %v", err)
	}
	if _, err := s.Admin.Account(t.Context()); err != nil {
		t.Errorf("first server: got error %v, want none", err)
	}
}

// Guarantee: records survive a restart, and a restart creates no further admin key.
func TestRestartKeepsRecords(t *testing.T) {
	s := keygatetest.Start(t)
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "n", Scope: "read"})
	if err != nil {
		t.Fatal(err)
	}
	s.Restart()
	got, err := s.Admin.Key(t.Context(), k.KeyID)
	if err != nil || got.Name != "n" {
		t.Errorf("got key %+v, error %v; want the key named n", got, err)
	}
	n := 0
	for _, err := range s.Admin.Keys(t.Context(), client.KeyFilter{Level: "account"}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("got %d account-level keys after a restart, want 1", n)
	}
}

// Guarantee: the key of an account that was created directly in the store is soon valid on
// the management API of a running server. Without a store no account is created.
func TestOfflineAccountIsSoonInForce(t *testing.T) {
	s := keygatetest.Start(t)
	created, err := server.CreateAccount(t.Context(), settings(t, s.DataDir), nil, "acme", "starter", []string{"*.acme.example"})
	if err != nil {
		t.Fatal(err)
	}
	api := s.Client(created.Key)
	awaittest.True(t, "the account's key is in force", func() bool {
		a, err := api.Account(t.Context())
		return err == nil && a.AccountID == created.AccountID && a.Plan == client.AccountPlanStarter
	})
	if _, err := server.CreateAccount(t.Context(), settings(t, t.TempDir()+"/none"), nil, "x", "starter", nil); err == nil {
		t.Error("created an account in a directory without a store, want an error")
	}
}

// Guarantee: the operator sees the server's settings with their sources.
func TestSettingsShowTheirSources(t *testing.T) {
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
		t.Errorf("got settings %v, want drain-timeout 5s from a flag and gateway-domain localhost by default", found)
	}
}

// Guarantee: /metrics counts requests by their result and management calls by their
// status.
func TestMetricsCountRequests(t *testing.T) {
	s := keygatetest.Start(t)
	up := keygatetest.NewUpstream(t)
	publicGateway(t, s.Admin, up.URL)
	s.Through("", http.MethodGet, "/x", "", "")
	s.Through("nobody.example", http.MethodGet, "/../x", "", "")
	s.Call(http.MethodGet, "/v1/account", "", "")
	text := scrape(t, s)
	for _, want := range []string{
		`keygate_gateway_decisions_total{outcome="forwarded"} 1`, `keygate_gateway_decisions_total{outcome="invalid_request"} 1`,
		`keygate_http_requests_total{plane="admin",status="4xx"} 1`, `keygate_build_info{`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics does not contain %s", want)
		}
	}
}

// Guarantee: without the secret.key that encrypted its secrets the server does not start,
// and it creates no other key in that place.
func TestMissingSecretKeyStopsTheStart(t *testing.T) {
	s := keygatetest.Start(t)
	s.Stop()
	path := filepath.Join(s.DataDir, "secret.key")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err := server.Start(t.Context(), server.Config{Settings: settings(t, s.DataDir)})
	if err == nil || !strings.Contains(err.Error(), "restore the file from a backup") || !strings.Contains(err.Error(), path) {
		t.Errorf("got error %v, want one that names the file and says to restore it", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a new key was created, or cannot be checked: %v", err)
	}
}
