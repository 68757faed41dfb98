package adminapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/token/tokentest"
)

// textOf returns a string of JSON; "" for null.
func textOf(v any) string {
	text, _ := v.(string)
	return text
}

// Guarantee: identity.md, section 1: verify checks a token as a gateway would, and says whom it identifies, or why it is
// refused. Tokens of issuers that the gateway does not name, or that another account has, are refused.
func TestVerifyChecksTokens(t *testing.T) {
	s := start(t)
	signer := tokentest.New([32]byte{1})
	const iss = "https://login.example.com/"
	made := s.post("/v1/issuers", map[string]any{
		"name": "login", "issuer": iss, "audiences": []string{"api"}, "jwks": json.RawMessage(signer.JWKS()), "claims": map[string]any{"owner": "org", "plan": "tier"},
	}).want(201)
	issuerID := made.text("issuer_id")
	with := s.post("/v1/gateways", map[string]any{"name": "with", "upstream_url": "http://127.0.0.1:9", "issuers": []string{"login"}}).want(201).text("gateway_id")
	without := s.newGateway("")
	owner := s.post("/v1/owners", map[string]any{"external_id": "login/bad"}).want(201).text("owner_id")
	s.do(request{method: "PATCH", path: "/v1/owners/" + owner, body: `{"state": "suspended"}`}).want(200)
	now := s.clock.Now()
	text := func(claims map[string]any) string { return signer.Token(iss, now, claims) }
	good := text(map[string]any{"scope": "read:orders", "org": "acme", "tier": "pro"})
	_, other := s.tenant("other")
	for _, c := range []struct {
		name, token, gateway, method, path, key string
		code, reason                            string // part of the reason
		knowsIssuer                             bool
	}{
		{name: "good", token: good, gateway: with, method: "GET", path: "/orders/1", knowsIssuer: true},
		{name: "without a gateway", token: good, knowsIssuer: true},
		{name: "method", token: good, gateway: with, method: "POST", path: "/orders/1", code: "scope_insufficient", knowsIssuer: true},
		{name: "path", token: good, gateway: with, method: "GET", path: "/carts", code: "scope_insufficient", knowsIssuer: true},
		{name: "another gateway", token: good, gateway: without, code: "token_invalid", reason: "not one of the gateway's issuers"},
		{name: "another account", token: good, key: other, code: "token_invalid", reason: "not one of the gateway's issuers"},
		{name: "audience", token: text(map[string]any{"aud": "web"}), gateway: with, code: "token_invalid", reason: `it has "web"`, knowsIssuer: true},
		{name: "signature", token: good[:len(good)-4] + "AAAA", gateway: with, code: "token_invalid", reason: "the signature is not one of the key", knowsIssuer: true},
		{name: "expired", token: text(map[string]any{"exp": now.Add(-time.Hour).Unix()}), gateway: with, code: "token_expired", reason: "the token has expired", knowsIssuer: true},
		{name: "suspended owner", token: text(map[string]any{"org": "bad"}), gateway: with, code: "owner_suspended", knowsIssuer: true},
		{name: "text", token: "x", gateway: with, code: "token_invalid", reason: "not three parts"},
		{name: "too long", token: strings.Repeat("x", 9000), gateway: with, code: "token_invalid", reason: "more than 8192 bytes"},
	} {
		body := map[string]any{"token": c.token}
		for name, value := range map[string]string{"gateway_id": c.gateway, "method": c.method, "path": c.path} {
			if value != "" {
				body[name] = value
			}
		}
		key := c.key
		if key == "" {
			key = s.accountKey("read")
		}
		r := s.do(request{method: "POST", path: "/v1/keys/verify", key: key, body: body}).want(200)
		if r.json["valid"] != (c.code == "") || textOf(r.json["code"]) != c.code || !strings.Contains(textOf(r.json["reason"]), c.reason) || c.reason == "" && r.json["reason"] != nil {
			t.Errorf("%s: got %s, want code %q and the reason %q", c.name, r.raw, c.code, c.reason)
		}
		if want := map[bool]string{true: issuerID}[c.knowsIssuer]; textOf(r.json["issuer_id"]) != want {
			t.Errorf("%s: got the issuer %v, want %q", c.name, r.json["issuer_id"], want)
		}
		if strings.Contains(r.raw, c.token) && c.name != "text" {
			t.Errorf("%s: the response has the token", c.name)
		}
		if c.name == "good" && (r.text("subject") != "ada" || r.text("owner") != "login/acme" || r.text("plan") != "pro" || r.text("scope") != "read:orders" ||
			r.text("expires_at") != now.Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)) {
			t.Errorf("got %s, want what the token says", r.raw)
		}
	}
	s.post("/v1/keys/verify", map[string]any{}).refused(422, "validation_failed", "key")
	s.post("/v1/keys/verify", map[string]any{"key": "kg_x", "token": good}).refused(422, "validation_failed", "token")
	s.post("/v1/keys/verify", map[string]any{"token": good, "gateway_id": "gw_none"}).refused(422, "validation_failed", "gateway_id")
}
