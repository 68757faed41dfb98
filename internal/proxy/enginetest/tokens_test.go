package enginetest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
	"github.com/keygate/keygate/internal/token/tokentest"
)

// Guarantee: identity.md, sections 1 and 2. The upstream gets whom a token identifies in headers that no client can set,
// whatever its credential and however it writes their names, in trailers too; and the token only if its issuer says so.
func TestClaimHeaders(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	signer := tokentest.New([32]byte{1})
	accountID := id.Format(id.Account, [16]byte{3})
	g := start(t, setup{upstream: "http://" + addr, headers: map[string]string{"X-Region": "ours"}, store: func(s *snapshottest.Source) {
		s.PutAccount(account.Account{ID: accountID, Name: account.Default, Tier: account.Platform})
		for n, name := range []string{"hides", "forwards"} {
			s.PutIssuer(issuer.Issuer{ID: id.Format(id.Issuer, [16]byte{byte(7 + n)}), AccountID: accountID, Name: name, Settings: issuer.Settings{
				URL: "https://" + name + ".example", Audiences: []string{"api"}, JWKS: signer.JWKS(), ForwardToken: name == "forwards",
				Claims: issuer.Claims{Owner: "org"}, ClaimHeaders: map[string]string{"X-Team": "team", "X-Region": "region"},
			}})
		}
		s.PutGateway(gateway.Gateway{
			ID: gatewayID, AccountID: accountID, Name: "test", Hostname: "gw.localhost", Default: true, Timeout: "10m",
			Upstream: gateway.Upstream{URL: "http://" + addr, Headers: map[string][]byte{"X-Region": []byte("ours")}},
			Requests: gateway.Requests{Issuers: []string{"hides", "forwards"}},
		},
			gateway.Route{ID: id.Format(id.Route, [16]byte{4}), GatewayID: gatewayID, Path: "/*", Methods: []string{"GET", "POST"}, Auth: gateway.AuthAny},
			gateway.Route{ID: id.Format(id.Route, [16]byte{5}), GatewayID: gatewayID, Path: "/public/*", Methods: []string{"GET"}, Auth: gateway.AuthNone},
		)
	}})
	claims := map[string]any{"sub": "a/b ü", "org": "acme", "team": "blue", "region": "theirs"}
	hidden, forwarded := signer.Token("https://hides.example", time.Now(), claims), signer.Token("https://forwards.example", time.Now(), claims)
	const forged = "X-Team: forged\r\nx_team: forged\r\nX-Region: forged\r\nX-Keygate-Subject: forged\r\nX_Keygate_Issuer: forged\r\n"
	for _, c := range []struct {
		name, target, authorization, subject, issuer, team, forwarded string
	}{
		{"token", "/a", "Bearer " + hidden, "a%2Fb%20%C3%BC", "https://hides.example", "blue", ""},
		{"token that is forwarded", "/a", "Bearer " + forwarded, "a%2Fb%20%C3%BC", "https://forwards.example", "blue", "Bearer " + forwarded},
		{"key", "/a", "Bearer " + g.key, "", "", "", ""},
		{"public route", "/public/a", "", "", "", "", ""},
	} {
		client := g.dial(t)
		head := "GET " + c.target + " HTTP/1.1\r\nHost: api.test\r\n" + forged
		if c.authorization != "" {
			head += "Authorization: " + c.authorization + "\r\n"
		}
		client.Send(head + "\r\n")
		client.wantHead("200")
		got := receive(t, "the request", heads)
		if got.get("x-keygate-subject") != c.subject || got.get("x-keygate-issuer") != c.issuer || got.get("x-team") != c.team ||
			got.get("authorization") != c.forwarded || got.get("x-region") != "ours" || strings.Contains(got.text, "forged") {
			t.Errorf("%s: the upstream received\n%s", c.name, got.text)
		}
	}
	for _, e := range g.records()[:1] {
		if e.Token == nil || e.Token.Subject != "a/b ü" || e.Owner != "hides/acme" || e.Key != [16]byte{} {
			t.Errorf("got the record %+v with the token %+v", e, e.Token)
		}
	}
	client := g.dial(t)
	client.Send("POST /a HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " + hidden + "\r\nTransfer-Encoding: chunked\r\nTrailer: x-team, x-sum\r\n\r\n0\r\nx_team: forged\r\nX-Team: forged\r\nx-sum: 1\r\n\r\n")
	client.wantHead("200")
	if got := receive(t, "the request with trailers", heads); strings.Contains(got.text, "forged") {
		t.Errorf("the upstream received\n%s", got.text)
	}
}
