package enginetest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
	"github.com/keygate/keygate/internal/token/tokentest"
)

// reserved are the headers that the gateway sets.
var reserved = []string{
	"X-Team", "X-Team-Lead-Name", "X-Keygate-Subject", "X-Keygate-Issuer", "X-Keygate-Key-Owner", "X-Keygate-Key-Id", "X-Keygate-Gateway-Id", "X-Keygate-Anything",
}

// spellings returns names that an upstream may take for the header, as CGI does.
func spellings(name string) []string {
	all := []string{name, strings.ToLower(name), strings.ToUpper(name), strings.ReplaceAll(name, "-", "_"), strings.Replace(name, "-", "_", 1)}
	if i := strings.LastIndex(name, "-"); i >= 0 {
		all = append(all, name[:i]+"_"+name[i+1:])
	}
	return all
}

// normal is a name as an upstream may read it.
func normal(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// Guarantee: no client sets a header of a token, whatever its credential, however it writes the name, in the head or in the
// trailers, over HTTP/1.1 and HTTP/2 to an upstream of either; and none that the gateway sets is taken away by naming it in
// Connection.
func TestForgedHeaders(t *testing.T) {
	t.Parallel()
	type received struct{ head, trailers http.Header }
	seen := make(chan received, 10)
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		seen <- received{r.Header.Clone(), r.Trailer.Clone()}
	}
	h1Upstream := httptest.NewServer(http.HandlerFunc(handler))
	t.Cleanup(h1Upstream.Close)
	signer := tokentest.New([32]byte{1})
	accountID := id.Format(id.Account, [16]byte{3})
	cases := 0
	for _, upstream := range []string{h1Upstream.URL, h2cUpstream(t, handler)} {
		g := start(t, setup{upstream: upstream, store: func(s *snapshottest.Source) {
			s.PutAccount(account.Account{ID: accountID, Name: account.Default, Tier: account.Platform})
			s.PutIssuer(issuer.Issuer{ID: id.Format(id.Issuer, [16]byte{7}), AccountID: accountID, Name: "login", Settings: issuer.Settings{
				URL: "https://login.example", Audiences: []string{"api"}, JWKS: signer.JWKS(), Claims: issuer.Claims{Owner: "org"},
				ClaimHeaders: map[string]string{"X-Team": "team", "X-Team-Lead-Name": "lead"},
			}})
			s.PutGateway(gateway.Gateway{
				ID: gatewayID, AccountID: accountID, Name: "test", Hostname: "gw.localhost", Default: true, Timeout: "10m",
				Upstream: gateway.Upstream{URL: upstream}, Requests: gateway.Requests{Issuers: []string{"login"}},
			},
				gateway.Route{ID: id.Format(id.Route, [16]byte{4}), GatewayID: gatewayID, Path: "/*", Methods: []string{"GET", "POST"}, Auth: gateway.AuthAny},
				gateway.Route{ID: id.Format(id.Route, [16]byte{5}), GatewayID: gatewayID, Path: "/public/*", Methods: []string{"GET", "POST"}, Auth: gateway.AuthNone},
			)
		}})
		tok := signer.Token("https://login.example", time.Now(), map[string]any{"sub": "ada", "org": "acme", "team": "blue"})
		ofToken := map[string]string{"x-team": "blue", "x-keygate-subject": "ada", "x-keygate-issuer": "https://login.example", "x-keygate-key-owner": "login/acme", "x-keygate-gateway-id": gatewayID}
		for _, c := range []struct {
			name, target, authorization string
			want                        map[string]string
		}{
			{"token", "/a", "Bearer " + tok, ofToken},
			{"token, with another case of the scheme", "/a", "bEaReR   " + tok, ofToken},
			{"key", "/a", "Bearer " + g.key, map[string]string{"x-keygate-key-id": keyID, "x-keygate-key-owner": "Ann <ann@example.com>", "x-keygate-gateway-id": gatewayID}},
			{"nobody", "/public/a", "", map[string]string{"x-keygate-gateway-id": gatewayID}},
			{"a token that nobody looks at", "/public/a", "Bearer " + tok, map[string]string{"x-keygate-gateway-id": gatewayID}},
		} {
			var names []string
			for _, name := range reserved {
				names = append(names, spellings(name)...)
			}
			for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
				if version == "HTTP/2" {
					sendForged(t, g.dialHTTP2(), c.target, c.authorization, names)
				} else {
					head := "POST " + c.target + " HTTP/1.1\r\nHost: api.test\r\nConnection: close, " + strings.Join(reserved, ", ") + ", Authorization\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum, " + strings.Join(names, ", ") + "\r\n"
					if c.authorization != "" {
						head += "Authorization: " + c.authorization + "\r\n"
					}
					forged := ""
					for _, name := range names {
						forged += name + ": forged\r\n"
					}
					client := g.dial(t)
					client.Send(head + forged + "\r\n1\r\nx\r\n0\r\nx-sum: 1\r\n" + forged + "\r\n")
					client.wantHead("200")
				}
				what := fmt.Sprintf("%s over %s to %s", c.name, version, upstream)
				got := receive(t, what, seen)
				found := map[string]string{}
				for _, section := range []http.Header{got.head, got.trailers} {
					for name, values := range section {
						for _, reserved := range reserved {
							if normal(name) == strings.ToLower(reserved) {
								found[normal(name)] += strings.Join(values, " | ")
							}
						}
						if strings.Contains(strings.Join(values, ""), "forged") {
							t.Errorf("%s: the upstream received %s: %q", what, name, values)
						}
					}
				}
				for _, name := range reserved {
					if n := strings.ToLower(name); found[n] != c.want[n] {
						t.Errorf("%s: got %s: %q, want %q", what, name, found[n], c.want[n])
					}
				}
				cases += 2 * len(names)
			}
		}
	}
	t.Logf("%d cases", cases)
}

// sendForged sends a request with the names in its head and its trailers, and waits for the response.
func sendForged(t *testing.T, f *framer, target, authorization string, names []string) {
	t.Helper()
	fields := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", target}, {"te", "trailers"}}
	if authorization != "" {
		fields = append(fields, [2]string{"authorization", authorization})
	}
	trailers := [][2]string{{"x-sum", "1"}}
	for _, name := range names {
		fields = append(fields, [2]string{strings.ToLower(name), "forged"})
		trailers = append(trailers, [2]string{strings.ToLower(name), "forged"})
	}
	f.request(1, false, fields)
	_ = f.WriteData(1, false, []byte("x"))
	f.request(1, true, trailers)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if head, ok := frame.(*http2.MetaHeadersFrame); ok {
			if status := head.PseudoValue("status"); status != "200" {
				t.Fatalf("got the status %s", status)
			}
			return
		}
	}
}
