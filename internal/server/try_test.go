package server_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/logtest"
)

// tried is a server with a gateway in front of an upstream, for requests that are tried.
type tried struct {
	*keygatetest.Server
	gateway *client.Gateway
	key     string
	log     *logtest.Recorder
}

// newTried starts the server with flags of serve.
func newTried(t *testing.T, upstream string, args ...string) *tried {
	t.Helper()
	log := &logtest.Recorder{}
	s := &tried{Server: keygatetest.StartWith(t, keygatetest.Options{Args: args, Log: log}), log: log}
	var err error
	if s.gateway, err = s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "orders", UpstreamURL: upstream}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.CreateRoute(t.Context(), s.gateway.GatewayID, client.CreateRouteRequest{Path: "/orders/{id}", Methods: []string{"GET", "HEAD", "POST"}}); err != nil {
		t.Fatal(err)
	}
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "caller", Scope: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	s.key = k.Secret
	return s
}

// try tries a request, which must be sent.
func (s *tried) try(t *testing.T, in client.TryRequest) *client.Try {
	t.Helper()
	r, err := s.Admin.Try(t.Context(), s.gateway.GatewayID, in)
	if err != nil {
		t.Fatalf("try %s %s: %v", in.Method, in.Path, err)
	}
	return r
}

// Guarantee: contract 3, try. A request is sent through the data plane as a client's, with the gateway's Host, its path,
// headers, body and key, whatever the listener expects; the response has everything. A refusal has its decision, which
// is in the log of refused requests too.
func TestTryGoesThroughTheDataPlane(t *testing.T) {
	up := keygatetest.NewUpstream(t)
	cert, key := certificatetest.New(t, "one.test").Write(t, t.TempDir())
	s := newTried(t, up.URL, "--trusted-proxies", "127.0.0.0/8", "--tls-cert", cert, "--tls-key", key)
	r := s.try(t, client.TryRequest{Method: "POST", Path: "/orders/1%207?q=a%20b", Headers: map[string]string{"x-color": "blue"}, Body: "a body", Key: s.key})
	if r.Status != 200 || r.Body != "ok" || r.BodyBase64 || r.Truncated || r.Decision != nil || r.DurationMs <= 0 || !strings.HasPrefix(r.RequestID, "req_") || len(r.Headers["X-Ratelimit-Limit"]) != 1 {
		t.Errorf("got %+v, want the response of the upstream", r)
	}
	list := up.Requests()
	if len(list) != 1 || list[0].Method != "POST" || list[0].Target != "/orders/1%207?q=a%20b" || list[0].Body != "a body" || list[0].Header.Get("X-Color") != "blue" ||
		list[0].Header.Get("X-Forwarded-Host") != s.gateway.Hostname || list[0].Header.Get("X-Forwarded-For") != "127.0.0.1" ||
		list[0].Header.Get("X-Forwarded-Proto") != "https" {
		t.Errorf("the upstream got %+v, want the request as it was given", list)
	}
	for path, status := range map[string]int{`/orders/a"b|c^d?x="`: 200, `/orders/a%2Fb"c`: 400, `//orders/a"b`: 400} {
		before := len(up.Requests())
		r := s.try(t, client.TryRequest{Method: "GET", Path: path, Key: s.key})
		if r.Status != status {
			t.Errorf("GET %s: got %d, want %d", path, r.Status, status)
		}
		if list := up.Requests()[before:]; status == 200 && (len(list) != 1 || list[0].Target != path) {
			t.Errorf("GET %s: the upstream got %+v, want the path as it was given", path, list)
		}
	}
	if r := s.try(t, client.TryRequest{Method: "HEAD", Path: "/orders/17", Key: s.key}); r.Status != 200 || r.Body != "" || r.Truncated {
		t.Errorf("HEAD: got %+v", r)
	}
	for _, c := range []struct {
		in              client.TryRequest
		status          int
		check, code, of string
	}{
		{client.TryRequest{Method: "GET", Path: "/orders/17"}, 401, "key", "key_invalid", ""},
		{client.TryRequest{Method: "GET", Path: "/orders/17/", Key: s.key}, 404, "route", "route_not_found", "ends with a slash"},
		{client.TryRequest{Method: "PATCH", Path: "/orders/17", Key: s.key}, 405, "route", "method_not_allowed", ""},
	} {
		r := s.try(t, c.in)
		if r.Status != c.status || r.Decision == nil || r.Decision.Check != c.check || r.Decision.Code != c.code || !strings.Contains(r.Decision.Message, c.of) {
			t.Errorf("%s %s: got %d and decision %+v, want %d and %s", c.in.Method, c.in.Path, r.Status, r.Decision, c.status, c.code)
			continue
		}
		logged, err := s.Admin.RequestByID(t.Context(), r.RequestID)
		if err != nil || logged.Decision.Message != r.Decision.Message || logged.ClientIP != "127.0.0.1" || (c.check == "route") != (len(r.Decision.NearestRoutes) == 1) {
			t.Errorf("%s %s: the log has %+v, error %v, want decision %+v", c.in.Method, c.in.Path, logged, err, r.Decision)
		}
	}
}

// Guarantee: the audit log has a record of each request that is tried, with its method and its path without the query.
// Neither it nor the server's log has the key, a header or a body, even if the path is a key.
func TestTryKeepsNoSecret(t *testing.T) {
	s := newTried(t, keygatetest.NewUpstream(t).URL)
	s.try(t, client.TryRequest{Method: "POST", Path: "/orders/17?secret=in-the-query", Headers: map[string]string{"X-Secret": "in-a-header"}, Body: "in-the-body", Key: s.key})
	s.try(t, client.TryRequest{Method: "GET", Path: "/" + s.key})
	var kept []string
	for e, err := range s.Admin.AuditLog(t.Context(), client.AuditFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, string(text))
	}
	all := strings.Join(kept, "\n")
	if n := strings.Count(all, `"gateway.try"`); n != 2 || !strings.Contains(all, `"path":[null,"/orders/17"]`) || !strings.Contains(all, `"method":[null,"POST"]`) || !strings.Contains(all, `"target":"`+s.gateway.GatewayID) {
		t.Errorf("got audit log %s\nwant two records of gateway.try, with method and path", all)
	}
	for _, secret := range []string{s.key, "in-the-query", "in-a-header", "in-the-body"} {
		if strings.Contains(all, secret) || strings.Contains(s.log.String(), secret) {
			t.Errorf("%q is in the audit log or the log", secret)
		}
	}
}

// Guarantee: what is wrong with a request that is to be tried is a 422 that names the field and never has the key;
// nothing is sent or recorded. A gateway of another account is a 404, and a scope without write a 403.
func TestTryRefusesWrongRequests(t *testing.T) {
	up := keygatetest.NewUpstream(t)
	s := newTried(t, up.URL)
	path := "/v1/gateways/" + s.gateway.GatewayID + "/try"
	for body, field := range map[string]string{
		`{"path": "/"}`:                                                                    "method",
		`{"method": "get", "path": "/"}`:                                                   "method",
		`{"method": "CONNECT", "path": "/"}`:                                               "method",
		`{"method": "GET", "path": "orders"}`:                                              "path",
		`{"method": "GET", "path": "/a b"}`:                                                "path",
		`{"method": "GET", "path": "/a#b"}`:                                                "path",
		`{"method": "GET", "path": "/%zz"}`:                                                "path",
		`{"method": "GET", "path": "/\r\nX: y"}`:                                           "path",
		`{"method": "GET", "path": "/", "key": "a secret"}`:                                "key",
		`{"method": "GET", "path": "/", "key": ""}`:                                        "key",
		`{"method": "GET", "path": "/", "headers": {"Host": "x"}}`:                         "headers.Host",
		`{"method": "GET", "path": "/", "headers": {"Connection": "close"}}`:               "headers.Connection",
		`{"method": "GET", "path": "/", "headers": {"Content-Length": "1"}}`:               "headers.Content-Length",
		`{"method": "GET", "path": "/", "headers": {"X": "a\r\nb"}}`:                       "headers.X",
		`{"method": "GET", "path": "/", "headers": {"a b": "c"}}`:                          "headers",
		`{"method": "GET", "path": "/", "headers": {"authorization": "x"}, "key": "kg_x"}`: "headers.authorization",
		`{"method": "POST", "path": "/", "body": "` + strings.Repeat("x", 64<<10+1) + `"}`: "body",
		`{"method": "GET", "path": "/` + strings.Repeat("x", 8<<10) + `"}`:                 "path",
	} {
		r := s.Call("POST", path, s.AdminKey, body)
		var failed struct{ Field string }
		if err := json.Unmarshal([]byte(r.Body), &failed); err != nil || r.Status != 422 || failed.Field != field || strings.Contains(r.Body, "a secret") {
			t.Errorf("%.80s: got %d %s, want a 422 of %s", body, r.Status, r.Body, field)
		}
	}
	good := `{"method": "GET", "path": "/orders/17"}`
	if r := s.Call("POST", path, newTenant(t, s.Server), good); r.Status != 404 {
		t.Errorf("another account: got %d %s, want 404", r.Status, r.Body)
	}
	reader, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "reader", Scope: "read", Level: ptr(client.CreateKeyRequestLevel("account"))})
	if err != nil {
		t.Fatal(err)
	}
	if r := s.Call("POST", path, reader.Secret, good); r.Status != 403 {
		t.Errorf("scope read: got %d %s, want 403", r.Status, r.Body)
	}
	if n := len(up.Requests()); n != 0 {
		t.Errorf("the upstream got %d requests, want none", n)
	}
}

func ptr[T any](v T) *T { return &v }

// Guarantee: a body is shown up to 64 KiB, without a part of a character at its end; one that is not text is in base64.
// The request ends there. Meanwhile another request of the account is a 429 of the account.
func TestTryIsBounded(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/orders/long":
			_, _ = io.WriteString(w, strings.Repeat("x", 64<<10-1)+strings.Repeat("é", 1<<20))
		case "/orders/binary":
			_, _ = w.Write([]byte{0xff, 0})
		default:
			close(arrived)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(up.Close)
	s := newTried(t, up.URL)
	if r := s.try(t, client.TryRequest{Method: "GET", Path: "/orders/long", Key: s.key}); !r.Truncated || r.BodyBase64 || r.Body != strings.Repeat("x", 64<<10-1) {
		t.Errorf("got %d bytes, truncated %v, base64 %v; want the first 64 KiB without the half of a character", len(r.Body), r.Truncated, r.BodyBase64)
	}
	if r := s.try(t, client.TryRequest{Method: "GET", Path: "/orders/binary", Key: s.key}); r.Truncated || !r.BodyBase64 || r.Body != base64.StdEncoding.EncodeToString([]byte{0xff, 0}) {
		t.Errorf("got body %q, base64 %v, want two bytes in base64", r.Body, r.BodyBase64)
	}
	ended := make(chan int64, 1)
	go func() {
		r, err := s.Admin.Try(t.Context(), s.gateway.GatewayID, client.TryRequest{Method: "GET", Path: "/orders/slow", Key: s.key})
		if err != nil {
			t.Error(err)
			r = &client.Try{}
		}
		ended <- int64(r.Status)
	}()
	awaittest.True(t, "the first request is at the upstream", func() bool {
		select {
		case <-arrived:
			return true
		default:
			return false
		}
	})
	second := s.Call("POST", "/v1/gateways/"+s.gateway.GatewayID+"/try", s.AdminKey, `{"method": "GET", "path": "/orders/17"}`)
	if second.Status != 429 || second.Header.Get("Retry-After") == "" || !strings.Contains(second.Body, `"limit_scope":"account"`) {
		t.Errorf("a second request: got %d %s, want a 429 of the account", second.Status, second.Body)
	}
	close(release)
	awaittest.True(t, "the first request ends", func() bool { return len(ended) == 1 })
	if status := <-ended; status != 200 {
		t.Errorf("got status %d of the first request, want 200", status)
	}
}
