package adminapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// edJWKS is a JWK Set with the public key of RFC 8037, A.2, and with one for encryption.
const edJWKS = `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"2026","alg":"EdDSA","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIuaPcHURo"},{"kty":"OKP","crv":"X25519","use":"enc","x":"11qY"}],"v":1}`

// newIssuer creates an issuer with what is required and returns it.
func (s *server) newIssuer(key, name string) *response {
	s.t.Helper()
	return s.do(request{method: "POST", path: "/v1/issuers", key: key, body: map[string]any{
		"name": name, "issuer": "https://login.example.com/", "audiences": []string{"api"}, "jwks": json.RawMessage(edJWKS),
	}}).want(201)
}

// decoded returns a JSON object.
func decoded(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Guarantee: an issuer is created, read, listed, changed and deleted with the fields of identity.md, section 2; a default
// shows as the value in force, and null restores it.
func TestIssuerIsCreatedChangedAndDeleted(t *testing.T) {
	s := start(t)
	const fields = "issuer_id name issuer jwks_url jwks ca audiences algorithms leeway max_lifetime typ required claims scope_map default_scopes owner_prefix claim_headers forward_token state last_error keys created_at"
	created := s.newIssuer("", "login")
	wantFields(t, created.json, fields)
	path := "/v1/issuers/" + created.text("issuer_id")
	if created.header.Get("Location") != path || created.header.Get("ETag") == "" || created.text("state") != "ok" || created.text("leeway") != "60s" || created.text("max_lifetime") != "24h" || created.text("owner_prefix") != "login/" {
		t.Errorf("got %v\n%s\nwant the defaults and Location", created.header, created.raw)
	}
	if got, want := compact(t, created.json["jwks"]), compact(t, decoded(t, edJWKS)); got != want {
		t.Errorf("got the keys %s, want %s", got, want)
	}
	if got := compact(t, created.json["algorithms"]); got != `["RS256","ES256","EdDSA"]` {
		t.Errorf("got the algorithms %s", got)
	}
	keys, _ := created.json["keys"].([]any)
	first, _ := keys[0].(map[string]any)
	second, _ := keys[1].(map[string]any)
	if len(keys) != 2 || first["kid"] != "2026" || first["alg"] != "EdDSA" || first["unusable"] != nil || second["kid"] != nil || second["unusable"] != `has the use "enc", and not sig` {
		t.Errorf("got the keys %s", compact(t, keys))
	}
	s.newIssuer("", "other")
	s.do(request{method: "PATCH", path: path, body: `{"name": "other"}`}).refused(409, "conflict", "name")
	const all = `{"name":"sso","issuer":"https://sso.example.com","audiences":["a","b"],"algorithms":["EdDSA"],"leeway":"0s","max_lifetime":"1h","typ":"at+jwt",` +
		`"required":{"tenant":"t1","level":[1,2.5],"ok":true},"claims":{"scope":"realm_access.roles","owner":null},"scope_map":{"Order Admin":"write:orders"},` +
		`"default_scopes":["read"],"owner_prefix":"","claim_headers":{"X-Email":"email"},"forward_token":true}`
	changed := s.do(request{method: "PATCH", path: path, body: all}).want(200)
	for field, want := range map[string]string{
		"required": `{"level":[1,2.5],"ok":true,"tenant":"t1"}`, "claims": `{"owner":null,"plan":null,"scope":"realm_access.roles"}`, "default_scopes": `["read"]`,
		"owner_prefix": `""`, "forward_token": `true`, "typ": `"at+jwt"`, "scope_map": `{"Order Admin":"write:orders"}`,
	} {
		if got := compact(t, changed.json[field]); got != want {
			t.Errorf("got %s: %s, want %s", field, got, want)
		}
	}
	cleared := s.do(request{method: "PATCH", path: path, body: `{"name":"login","issuer":"https://login.example.com/","audiences":["api"],"algorithms":null,"leeway":null,"max_lifetime":null,"typ":null,` +
		`"required":null,"claims":null,"scope_map":null,"default_scopes":null,"owner_prefix":null,"claim_headers":null,"forward_token":null}`}).want(200)
	if got, want := compact(t, cleared.json), compact(t, created.json); got != want {
		t.Errorf("got %s, want what was created, %s", got, want)
	}
	if list := s.get("/v1/issuers?name=login").want(200).data(); len(list) != 1 || list[0]["name"] != "login" {
		t.Errorf("got the list %v", list)
	}
	wantFields(t, s.do(request{method: "DELETE", path: path}).want(200).json, fields)
	s.get(path).refused(404, "not_found", "")
}

// Guarantee: a mistake in an issuer is a 422 that names the field; what is not supported is an unknown field.
func TestMistakesInIssuers(t *testing.T) {
	s := start(t)
	path := "/v1/issuers/" + s.newIssuer("", "login").text("issuer_id")
	for body, field := range map[string]string{
		`{"issuer":"http://a.example"}`: "issuer", `{"issuer":null}`: "issuer", `{"jwks_url":"https://a.example/keys"}`: "jwks_url", `{"jwks":null,"jwks_url":"http://a.example/keys"}`: "jwks_url", `{"jwks":null,"ca":"x"}`: "ca", `{"ca":"x"}`: "ca", `{"jwks":[]}`: "jwks", `{"jwks":{}}`: "jwks.keys", `{"jwks":{"keys":[1]}}`: "jwks.keys[0]",
		`{"jwks":{"keys":[{"kty":"oct","k":"AA"}]}}`: "jwks.keys[0]", `{"jwks":{"keys":[]}}`: "jwks", `{"audiences":[]}`: "audiences", `{"audiences":["a","a"]}`: "audiences[1]",
		`{"algorithms":["HS256"]}`: "algorithms[0]", `{"algorithms":["RS256"]}`: "algorithms", `{"algorithms":[]}`: "algorithms", `{"leeway":"10m"}`: "leeway", `{"max_lifetime":"500d"}`: "max_lifetime",
		`{"typ":"dpop+jwt"}`: "typ", `{"required":{"a":null}}`: "required.a", `{"required":{"a":{}}}`: "required.a", `{"required":{"a":[[1]]}}`: "required.a", `{"required":[]}`: "required",
		`{"claims":{"email":"x"}}`: "claims.email", `{"scope_map":{"a":"reed"}}`: "scope_map.a", `{"default_scopes":["a"]}`: "default_scopes[0]", `{"owner_prefix":" "}`: "owner_prefix",
		`{"claim_headers":{"Host":"a"}}`: "claim_headers.Host", `{"forward_token":"yes"}`: "forward_token", `{"none":1}`: "none",
	} {
		s.do(request{method: "PATCH", path: path, body: body}).refused(422, "validation_failed", field)
	}
	bad := s.do(request{method: "POST", path: "/v1/issuers", body: `{"name":"Bad","leeway":1,"required":{"a":null},"typ":"dpop+jwt"}`}).want(422)
	for _, field := range []string{"leeway", "issuer", "audiences", "name", "required.a", "typ"} {
		if !strings.Contains(bad.raw, `"field":"`+field+`"`) {
			t.Errorf("got %s, want all mistakes at once, with that in %s", bad.raw, field)
		}
	}
}

// Guarantee: a key of another account finds no issuer of this one, and a key without the word admin for issuers changes
// none, since tokens may have any scope.
func TestIssuersOfOthersAndSmallScopes(t *testing.T) {
	s := start(t)
	path := "/v1/issuers/" + s.newIssuer("", "login").text("issuer_id")
	stranger := s.newAccount("stranger")
	for _, method := range []string{http.MethodGet, http.MethodPatch, http.MethodDelete} {
		q := request{method: method, path: path, key: stranger}
		if method == http.MethodPatch {
			q.body = `{"name":"mine"}`
		}
		s.do(q).refused(404, "not_found", "")
	}
	s.do(request{method: "POST", path: path + "/refresh", key: stranger}).refused(404, "not_found", "")
	if list := s.do(request{method: "GET", path: "/v1/issuers", key: stranger}).want(200).data(); len(list) != 0 {
		t.Errorf("a stranger lists %v", list)
	}
	reader, writer, admin := s.accountKey("read"), s.accountKey("write"), s.accountKey("read admin:issuers")
	s.do(request{method: "GET", path: path, key: reader}).want(200)
	s.do(request{method: "PATCH", path: path, key: reader, body: `{"name":"n"}`}).refused(403, "forbidden", "")
	s.do(request{method: "PATCH", path: path, key: writer, body: `{"name":"n"}`}).refused(403, "forbidden", "")
	s.do(request{method: "DELETE", path: path, key: writer}).refused(403, "forbidden", "")
	s.do(request{method: "POST", path: path + "/refresh", key: reader}).refused(403, "forbidden", "")
	s.do(request{method: "POST", path: path + "/refresh", key: writer}).refused(409, "conflict", "")
	s.newIssuer(admin, "of-admin")
	s.do(request{method: "PATCH", path: path, key: admin, body: `{"name":"n"}`}).want(200)
}

// Guarantee: keys are fetched unless they are given by hand: null in place of given ones, with the address and the
// certificates for the fetch. The record has what was given and, as long as nothing was fetched, no key.
func TestIssuerWhoseKeysAreFetched(t *testing.T) {
	s := start(t)
	made := s.do(request{method: "POST", path: "/v1/issuers", body: `{"name":"login","issuer":"https://login.example.com/","audiences":["api"]}`}).want(201)
	for field, want := range map[string]string{"jwks": `null`, "jwks_url": `null`, "ca": `null`, "keys": `[]`, "state": `"ok"`, "last_error": `null`} {
		if got := compact(t, made.json[field]); got != want {
			t.Errorf("got %s: %s, want %s", field, got, want)
		}
	}
	given := "/v1/issuers/" + s.newIssuer("", "given").text("issuer_id")
	changed := s.do(request{method: "PATCH", path: given, body: `{"jwks":null,"jwks_url":"https://keys.example.com/a?b=c"}`}).want(200)
	for field, want := range map[string]string{"jwks": `null`, "jwks_url": `"https://keys.example.com/a?b=c"`, "keys": `[]`} {
		if got := compact(t, changed.json[field]); got != want {
			t.Errorf("got %s: %s, want %s", field, got, want)
		}
	}
}
