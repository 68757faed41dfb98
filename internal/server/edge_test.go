package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// received is a request as an upstream received it.
type received struct {
	Proto  string
	Header http.Header
}

// echoUpstream starts an upstream that responds with the request it received, as JSON.
func echoUpstream(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(received{r.Proto, r.Header})
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return "http://" + l.Addr().String()
}

// throughEcho sends a request through the data plane to an echoUpstream. It returns the
// protocol of the response and what the upstream received. header holds alternating names
// and values.
func throughEcho(t *testing.T, tr *http.Transport, url string, header ...string) (proto string, got received) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/x", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("got status %d, body %s, error %v; want 200", res.StatusCode, body, err)
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	return res.Proto, got
}

// Guarantee: with TLS the data plane serves HTTP/1.1 and HTTP/2, and forwards
// X-Forwarded-Proto: https over both; a new certificate is served without a restart
// (contract, section 1).
func TestDataPlaneServesTLS(t *testing.T) {
	pair, dir := certificatetest.New(t, "one.test"), t.TempDir()
	cert, key := pair.Write(t, dir)
	s := keygatetest.Start(t, "--tls-cert", cert, "--tls-key", key)
	publicGateway(t, s.Admin, echoUpstream(t))
	url := "https://" + s.Running().GatewayAddr()
	for want, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pair.Pool(t)}, ForceAttemptHTTP2: h2}
		proto, got := throughEcho(t, tr, url, "X-Forwarded-Proto", "http", "X-Forwarded-For", "192.0.2.1")
		tr.CloseIdleConnections()
		if proto != want || got.Header.Get("X-Forwarded-Proto") != "https" || got.Header.Get("X-Forwarded-For") != "127.0.0.1" {
			t.Errorf("got protocol %s, upstream received %+v; want %s, X-Forwarded-Proto https and X-Forwarded-For 127.0.0.1", proto, got, want)
		}
	}
	two := certificatetest.New(t, "two.test")
	two.Write(t, dir)
	awaittest.True(t, "the new certificate is served", func() bool {
		c, err := tls.Dial("tcp", s.Running().GatewayAddr(), &tls.Config{RootCAs: two.Pool(t), ServerName: "two.test"})
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// Guarantee: with TLS the management API is served over HTTP/1.1 and HTTP/2.
func TestManagementAPIServesTLS(t *testing.T) {
	pair := certificatetest.New(t, "one.test")
	cert, key := pair.Write(t, t.TempDir())
	s := keygatetest.Start(t, "--admin-tls-cert", cert, "--admin-tls-key", key)
	for want, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pair.Pool(t)}, ForceAttemptHTTP2: h2}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Running().AdminAddr()+"/v1/account", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+s.AdminKey)
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		tr.CloseIdleConnections()
		if res.StatusCode != http.StatusOK || res.Proto != want {
			t.Errorf("got %s %s, want 200 over %s", res.Proto, res.Status, want)
		}
	}
}

// Guarantee: with an unusable certificate the server does not start and changes nothing,
// and the error names the flag and the file.
func TestBadCertificateStopsTheStart(t *testing.T) {
	good, other := certificatetest.New(t, "one.test"), certificatetest.New(t, "two.test")
	cert, _ := good.Write(t, t.TempDir())
	_, key := other.Write(t, t.TempDir())
	for _, plane := range []string{"", "admin-"} {
		for _, tc := range []struct{ cert, key, want string }{
			{cert, key, "do not match"},
			{"/nowhere/cert.pem", key, "--" + plane + "tls-cert: file /nowhere/cert.pem does not exist"},
		} {
			dir := filepath.Join(t.TempDir(), "data")
			c := settings(t, dir, "--"+plane+"tls-cert", tc.cert, "--"+plane+"tls-key", tc.key)
			_, err := server.Start(t.Context(), server.Config{Settings: c})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "--"+plane+"tls-cert") {
				t.Errorf("got error %v, want one that names --%stls-cert and contains %q", err, plane, tc.want)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the data directory was created")
			}
		}
	}
}

// Guarantee: over both protocols the X-Forwarded-* headers of a trusted proxy are
// forwarded. If the proxy names a client in a PROXY header that is not itself trusted, that
// client's X-Forwarded-* headers are replaced (contract, section 4.2).
func TestTrustedProxiesAreBelieved(t *testing.T) {
	s := keygatetest.Start(t, "--trusted-proxies", "127.0.0.0/8")
	publicGateway(t, s.Admin, echoUpstream(t))
	for _, h2 := range []bool{false, true} {
		for _, tc := range []struct{ header, wantFor, wantProto string }{
			{"", "192.0.2.1, 127.0.0.1", "https"},
			{"PROXY TCP4 198.51.100.7 127.0.0.1 1 2\r\n", "198.51.100.7", "http"},
		} {
			var p http.Protocols
			p.SetHTTP1(!h2)
			p.SetUnencryptedHTTP2(h2)
			tr := &http.Transport{Protocols: &p, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				var d net.Dialer
				c, err := d.DialContext(ctx, network, addr)
				if err == nil {
					_, err = io.WriteString(c, tc.header)
				}
				return c, err
			}}
			_, got := throughEcho(t, tr, s.GatewayURL(), "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "https")
			tr.CloseIdleConnections()
			if got.Header.Get("X-Forwarded-For") != tc.wantFor || got.Header.Get("X-Forwarded-Proto") != tc.wantProto {
				t.Errorf("HTTP/2 %t, PROXY header %q: the upstream received %v, want X-Forwarded-For %s and X-Forwarded-Proto %s", h2, tc.header, got.Header, tc.wantFor, tc.wantProto)
			}
		}
	}
}

// Guarantee: without --trusted-proxies a PROXY header is a malformed request.
func TestUntrustedProxyHeaderIsMalformed(t *testing.T) {
	s := keygatetest.Start(t)
	c, err := net.Dial("tcp", s.Running().GatewayAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(awaittest.Timeout))
	_, _ = io.WriteString(c, "PROXY TCP4 198.51.100.7 127.0.0.1 1 2\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("got status %d, want 400", res.StatusCode)
	}
}

// Guarantee: --max-connections-per-address closes a further connection, and /metrics counts the
// open and the refused connections.
func TestConnectionLimitPerAddress(t *testing.T) {
	s := keygatetest.Start(t, "--max-connections-per-address", "2")
	publicGateway(t, s.Admin, echoUpstream(t))
	var open []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", s.Running().GatewayAddr())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	third, err := net.Dial("tcp", s.Running().GatewayAddr())
	if err != nil {
		t.Fatal(err)
	}
	_ = third.SetDeadline(time.Now().Add(awaittest.Timeout))
	if n, err := third.Read(make([]byte, 1)); n > 0 || err == nil || os.IsTimeout(err) {
		t.Errorf("third connection: got error %v, want it to be closed", err)
	}
	_ = third.Close()
	awaittest.True(t, "2 connections are open, and 1 was refused", func() bool { // it counts as open until it is closed
		status, metrics := fetch(t, s.OpsURL()+"/metrics")
		return status == http.StatusOK && strings.Contains(metrics, "keygate_gateway_connections 2\n") &&
			strings.Contains(metrics, "keygate_gateway_connections_refused_total 1\n")
	})
	for _, c := range open {
		_ = c.Close()
	}
}

// Guarantee: an audit record has the client address that a trusted proxy reports, and
// ignores what anyone else reports (contract, section 7).
func TestAuditRecordHasTheClientAddress(t *testing.T) {
	for _, tc := range []struct {
		trusted []string
		want    string
	}{
		{nil, "127.0.0.1"},
		{[]string{"--trusted-proxies", "127.0.0.0/8"}, "192.0.2.9"},
	} {
		s := keygatetest.Start(t, tc.trusted...)
		created := s.Call(http.MethodPost, "/v1/keys", s.AdminKey, `{"name": "k", "scope": "read"}`, "X-Forwarded-For", "198.51.100.1, 192.0.2.9")
		if created.Status != http.StatusCreated {
			t.Fatalf("create a key: got status %d %s, want 201", created.Status, created.Body)
		}
		s.Stop()
		if got := lastClientIP(t, filepath.Join(s.DataDir, "keygate.db")); got != tc.want {
			t.Errorf("flags %v: got client address %s, want %s", tc.trusted, got, tc.want)
		}
	}
}

// lastClientIP returns the client address in the newest audit record of the database.
func lastClientIP(t *testing.T, path string) string {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var records []audit.Record
	if err := db.View(t.Context(), func(tx control.ReadTx) error {
		a, err := tx.AccountByName(t.Context(), account.Default)
		if err != nil {
			return err
		}
		records, err = tx.Audit(t.Context(), a.ID, control.Page{Limit: 1})
		return err
	}); err != nil || len(records) == 0 {
		t.Fatalf("got audit records %v, error %v; want one record", records, err)
	}
	return records[0].ClientIP
}
