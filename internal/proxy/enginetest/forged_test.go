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

// startWithTokens starts a gateway that takes keys and the tokens of signer, and has public routes below /public.
func startWithTokens(t *testing.T, upstream string, signer *tokentest.Signer) *harness {
	t.Helper()
	accountID := id.Format(id.Account, [16]byte{3})
	return start(t, setup{upstream: upstream, store: func(s *snapshottest.Source) {
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
}

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
	cases := 0
	for _, upstream := range []string{h1Upstream.URL, h2cUpstream(t, handler)} {
		g := startWithTokens(t, upstream, signer)
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

// Guarantee: identity.md, section 1. Of several credentials, and of a token that is not exactly the value of one Authorization
// header with the scheme Bearer, none passes, over HTTP/1.1 and HTTP/2.
func TestFormsOfCredentials(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	signer := tokentest.New([32]byte{1})
	g := startWithTokens(t, "http://"+addr, signer)
	tok := signer.Token("https://login.example", time.Now(), nil)
	type field = [2]string
	bearer := func(of string) field { return field{"authorization", "Bearer " + of} }
	for _, c := range []struct {
		name, target string
		fields       []field
		want         string
	}{
		{"one", "/a", []field{bearer(tok)}, "200"},
		{"tab", "/a", []field{{"authorization", "Bearer\t" + tok}}, "200"},
		{"lower case", "/a", []field{{"authorization", "bearer " + tok}}, "200"},
		{"twice the same", "/a", []field{bearer(tok), bearer(tok)}, "400"},
		{"a bad one behind it", "/a", []field{bearer(tok), bearer("x")}, "400"},
		{"a bad one in front", "/a", []field{bearer("x"), bearer(tok)}, "400"},
		{"an empty one behind it", "/a", []field{bearer(tok), {"authorization", ""}}, "400"},
		{"another scheme behind it", "/a", []field{bearer(tok), {"authorization", "Basic YTpi"}}, "400"},
		{"a key in the same header", "/a", []field{bearer(tok), bearer(g.key)}, "400"},
		{"a key in the query", "/a?api_key=" + g.key, []field{bearer(tok)}, "400"},
		{"a key in the query, with an escape", "/a?%61pi_key=" + g.key, []field{bearer(tok)}, "400"},
		{"an empty key in the query", "/a?api_key=", []field{bearer(tok)}, "400"},
		{"two keys in the query", "/a?api_key=" + g.key + "&api_key=" + g.key, nil, "400"},
		{"a list", "/a", []field{bearer(tok + ", " + tok)}, "401"},
		{"a list of schemes", "/a", []field{bearer(tok + ", Basic YTpi")}, "401"},
		{"two words", "/a", []field{bearer(tok + " " + tok)}, "401"},
		{"quotes", "/a", []field{bearer(`"` + tok + `"`)}, "401"},
		{"a parameter", "/a", []field{bearer("token=" + tok)}, "401"},
		{"no scheme", "/a", []field{{"authorization", tok}}, "401"},
		{"another scheme", "/a", []field{{"authorization", "Token " + tok}}, "401"},
		{"a longer scheme", "/a", []field{{"authorization", "BearerX " + tok}}, "401"},
		{"DPoP", "/a", []field{{"authorization", "DPoP " + tok}}, "401"},
		{"no token", "/a", []field{{"authorization", "Bearer"}}, "401"},
		{"for a proxy", "/a", []field{{"proxy-authorization", "Bearer " + tok}}, "401"},
		{"in a cookie", "/a", []field{{"cookie", "access_token=" + tok}}, "401"},
		{"in the query", "/a?access_token=" + tok, nil, "401"},
		{"in the key's parameter", "/a?api_key=" + tok, nil, "401"},
		{"another spelling of the header", "/a", []field{{"authorization_", "Bearer " + tok}}, "401"},
		{"percent-encoded", "/a", []field{bearer(strings.ReplaceAll(tok, ".", "%2E"))}, "401"},
		{"with padding", "/a", []field{bearer(tok + "=")}, "401"},
		{"behind a tag of keys", "/a", []field{bearer("kg_" + tok)}, "401"},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := func(version, status string) {
				t.Helper()
				if status != c.want {
					t.Errorf("%s: got the status %s, want %s", version, status, c.want)
				}
				if status != "200" {
					wantNone(t, heads)
				} else if got := receive(t, "the request", heads); strings.Contains(got.text, tok[:20]) || got.get("x-keygate-subject") != "ada" {
					t.Errorf("%s: the upstream received\n%s", version, got.text)
				}
			}
			head := "GET " + c.target + " HTTP/1.1\r\nHost: api.test\r\n"
			for _, f := range c.fields {
				head += f[0] + ": " + f[1] + "\r\n"
			}
			client := g.dial(t)
			client.Send(head + "\r\n")
			check("HTTP/1.1", strings.Fields(client.head().line)[1])
			response := g.stream(append([][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", c.target}}, c.fields...), nil)
			check("HTTP/2", response.PseudoValue("status"))
		})
	}
}
