package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
)

// requestSettings is a server with a gateway that has key_headers and allow_encoded_slashes, and a key.
type requestSettings struct {
	*keygatetest.Server
	upstream *keygatetest.Upstream
	gateway  *client.Gateway
	key      string
}

func startRequestSettings(t *testing.T) *requestSettings {
	t.Helper()
	r := &requestSettings{Server: keygatetest.Start(t), upstream: keygatetest.NewUpstream(t)}
	yes := true
	var err error
	r.gateway, err = r.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{
		Name: "projects", UpstreamURL: r.upstream.URL, KeyHeaders: &[]string{"X-API-Key"}, AllowEncodedSlashes: &yes,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Admin.CreateRoute(t.Context(), r.gateway.GatewayID, client.CreateRouteRequest{Path: "/projects/{id}", Methods: []string{"GET", "POST"}}); err != nil {
		t.Fatal(err)
	}
	k, err := r.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "write:projects"})
	if err != nil {
		t.Fatal(err)
	}
	r.key = k.Secret
	return r
}

// post sends a request with a body and a trailer over HTTP/1.1 or, with http2, HTTP/2.
func (r *requestSettings) post(t *testing.T, http2 bool, target string, header http.Header) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.GatewayURL()+target, io.MultiReader(strings.NewReader("hello")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header, req.Host = header, r.gateway.Hostname
	req.Trailer = http.Header{"X-Api-Key": {r.key}, "X-Sum": {"1"}}
	transport := &http.Transport{DisableKeepAlives: !http2, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
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

// Guarantee: contract 3.3: over HTTP/1.1 and HTTP/2, the key in one of key_headers admits a
// request and never reaches the upstream; Authorization, which is not in the list, reaches it
// unless it holds a key; an encoded slash reaches the upstream as sent.
func TestKeyHeadersAndEncodedSlashes(t *testing.T) {
	r := startRequestSettings(t)
	for _, http2 := range []bool{false, true} {
		name := map[bool]string{false: "HTTP/1.1", true: "HTTP/2"}[http2]
		t.Run(name, func(t *testing.T) {
			status, body := r.post(t, http2, "/projects/group%2Fname?x=1", http.Header{
				"X-Api-Key": {r.key}, "X_API_Key": {r.key}, "Authorization": {"Bearer of-the-service"},
			})
			if status != http.StatusOK {
				t.Fatalf("got %d %s, want 200", status, body)
			}
			all := r.upstream.Requests()
			got := all[len(all)-1]
			if got.Target != "/projects/group%2Fname?x=1" || got.Header.Get("Authorization") != "Bearer of-the-service" {
				t.Errorf("the upstream received %s with Authorization %q", got.Target, got.Header.Get("Authorization"))
			}
			for name, values := range got.Header {
				if strings.Contains(strings.Join(values, " "), r.key) {
					t.Errorf("the upstream received the key in the header %s", name)
				}
			}
			for _, refused := range []http.Header{
				{"Authorization": {"Bearer " + r.key}},
				{"X-Api-Key": {r.key, r.key}},
				{"X-Api-Key": {"Bearer " + r.key}},
			} {
				if status, body := r.post(t, http2, "/projects/1", refused); status != http.StatusUnauthorized && status != http.StatusBadRequest {
					t.Errorf("%v: got %d %s, want 400 or 401", len(refused), status, body)
				}
			}
			if status, _ := r.post(t, http2, "/projects/1", http.Header{"X-Api-Key": {r.key}, "Authorization": {"Bearer " + r.key}}); status != http.StatusOK {
				t.Errorf("got %d for a key in both headers, want 200", status)
			}
			all = r.upstream.Requests()
			if got := all[len(all)-1].Header.Get("Authorization"); got != "" {
				t.Errorf("the upstream received the key in Authorization: %.3s…", got)
			}
		})
	}
	patch := client.GatewayPatch{KeyHeaders: client.Clear[[]string](), AllowEncodedSlashes: client.Set(false)}
	if _, err := r.Admin.UpdateGateway(t.Context(), r.gateway.GatewayID, patch); err != nil {
		t.Fatal(err)
	}
	if status, _ := r.post(t, false, "/projects/1", http.Header{"Authorization": {"Bearer " + r.key}}); status != http.StatusOK {
		t.Errorf("got %d for a Bearer key after the default was restored, want 200", status)
	}
	if status, _ := r.post(t, false, "/projects/group%2Fname", http.Header{"Authorization": {"Bearer " + r.key}}); status != http.StatusBadRequest {
		t.Errorf("got %d for an encoded slash after it was disallowed, want 400", status)
	}
}
