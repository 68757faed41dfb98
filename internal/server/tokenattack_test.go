package server_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/token/tokentest"
)

// given creates an issuer with the key of a signer.
func given(t *testing.T, c *client.Client, signer *tokentest.Signer) {
	t.Helper()
	if _, err := c.CreateIssuer(t.Context(), client.CreateIssuerRequest{
		Name: "login", Issuer: "https://login.example", JWKS: []byte(signer.JWKS()), Audiences: []string{"api"}, DefaultScopes: []string{"read"},
	}); err != nil {
		t.Fatal(err)
	}
}

// gatewayFor creates a gateway of the key's account, which takes tokens of the issuer login at the host.
func gatewayFor(t *testing.T, s *keygatetest.Server, key, host, upstream string) {
	t.Helper()
	made := s.Call("POST", "/v1/gateways", key, `{"name":"g","hostname":"`+host+`","upstream_url":"`+upstream+`","issuers":["login"],"config":"routes: [{path: /a, methods: [GET], auth: token}, {path: /any, methods: [GET], auth: any}]"}`)
	if made.Status != http.StatusCreated {
		t.Fatalf("got %d %s", made.Status, made.Body)
	}
}

// Guarantee: a token passes at gateways of the account alone whose issuer has signed it, however accounts name their issuers,
// and also after another account's gateway has verified it.
func TestTokensOfOtherAccounts(t *testing.T) {
	s := keygatetest.StartWith(t, keygatetest.Options{Args: []string{"--upstream-allow-network", "127.0.0.0/8"}})
	account, err := s.Admin.CreateAccount(t.Context(), client.CreateAccountRequest{Name: "tenant", Plan: "starter", Hosts: &[]string{"theirs.test"}})
	if err != nil {
		t.Fatal(err)
	}
	upstream := namedUpstream(t, "u")
	ours, theirs := tokentest.New([32]byte{1}), tokentest.New([32]byte{2})
	given(t, s.Admin, ours)
	given(t, s.Client(account.Secret), theirs)
	gatewayFor(t, s, s.AdminKey, "ours.test", upstream)
	gatewayFor(t, s, account.Secret, "theirs.test", upstream)
	tokens := map[string]string{}
	for host, signer := range map[string]*tokentest.Signer{"ours.test": ours, "theirs.test": theirs} {
		tokens[host] = signer.Token("https://login.example", time.Now(), nil)
	}
	for range 2 { // the second time, both are remembered
		for host := range tokens {
			for of, tok := range tokens {
				want := http.StatusUnauthorized
				if host == of {
					want = http.StatusOK
				}
				if got := s.Through(host, http.MethodGet, "/a", tok, ""); got.Status != want {
					t.Errorf("a token of %s at %s: got %d %s, want %d", of, host, got.Status, got.Body, want)
				}
			}
		}
	}
	for key, tok := range map[string]string{s.AdminKey: tokens["theirs.test"], account.Secret: tokens["ours.test"]} {
		if got := s.Call("POST", "/v1/keys/verify", key, `{"token":"`+tok+`"}`); got.Status != http.StatusOK || !strings.Contains(got.Body, `"valid":false`) {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
	}
}

// Guarantee: no token is in a log, a record, a metric, a response or a file of the server, wherever a client puts it, and
// whether it is valid or not.
func TestTokensAreNowhere(t *testing.T) {
	log := &lockedBuffer{}
	s := keygatetest.StartWith(t, keygatetest.Options{Log: log})
	signer := tokentest.New([32]byte{1})
	given(t, s.Admin, signer)
	gatewayFor(t, s, s.AdminKey, "gw.test", namedUpstream(t, "u"))
	tokens := []string{
		signer.Token("https://login.example", time.Now(), nil),
		signer.Token("https://login.example", time.Now(), map[string]any{"sub": "a\x00\x1b[31m\u202e\r\nX: y"}),
		signer.Token("https://login.example", time.Now(), map[string]any{"aud": "x"}),
		signer.Token("https://else.example", time.Now(), nil),
		tokentest.New([32]byte{9}).Token("https://login.example", time.Now(), nil),
	}
	var responses strings.Builder
	say := func(r keygatetest.Response) int {
		responses.WriteString(r.Body)
		for name, values := range r.Header {
			responses.WriteString(name + strings.Join(values, "\n"))
		}
		return r.Status
	}
	for n, tok := range tokens {
		want := http.StatusOK
		if n >= 2 {
			want = http.StatusUnauthorized
		}
		if got := say(s.Through("gw.test", http.MethodGet, "/a", tok, "")); got != want {
			t.Errorf("token %d: got %d, want %d", n, got, want)
		}
		say(s.Through("gw.test", http.MethodGet, "/any?api_key="+tok, "", ""))
		say(s.Through("gw.test", http.MethodGet, "/any", "", "", "X-API-Key", tok))
		say(s.Through("gw.test", http.MethodGet, "/any?api_key=kg_x", tok, ""))
		say(s.Call("GET", "/v1/gateways", tok, ""))
		say(s.Call("POST", "/v1/session", "", `{"key":"`+tok+`"}`))
		say(s.Call("POST", "/v1/keys/verify", s.AdminKey, `{"token":"`+tok+`","method":"GET","path":"/a"}`, "Idempotency-Key", "k"+string(rune('a'+n))))
		say(s.Call("POST", "/v1/keys/verify", s.AdminKey, `{"key":"`+tok+`"}`))
	}
	for _, path := range []string{"/v1/audit-log", "/v1/requests", "/v1/issuers", "/v1/gateways", "/v1/events"} {
		if got := say(s.Call("GET", path, s.AdminKey, "")); got != http.StatusOK {
			t.Errorf("%s: got %d", path, got)
		}
	}
	_, metrics := fetch(t, s.OpsURL()+"/metrics")
	responses.WriteString(metrics)
	s.Stop() // everything is written
	texts := map[string]string{"a response": responses.String(), "the log": log.String()}
	err := filepath.WalkDir(s.DataDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		texts[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for n, tok := range tokens {
		parts := strings.Split(tok, ".")
		for what, text := range texts {
			if strings.Contains(text, parts[2][:30]) || strings.Contains(text, parts[1]) {
				t.Errorf("token %d is in %s", n, what)
			}
		}
	}
	if strings.Contains(log.String(), "\x1b") {
		t.Error("the log has an escape sequence of a token")
	}
}

// Guarantee: whatever the subject of a valid token is, both stores keep it as it is in the log of requests and in the audit log,
// and the records beside it as well.
func TestAnySubjectIsRecorded(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret.key")
	if err := os.WriteFile(secret, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"SQLite": nil, "PostgreSQL": {"--database-url", postgrestest.Empty(t), "--secret-key-file", secret}} {
		t.Run(name, func(t *testing.T) {
			s := keygatetest.Start(t, args...)
			signer := tokentest.New([32]byte{1})
			given(t, s.Admin, signer)
			gatewayFor(t, s, s.AdminKey, "gw.test", namedUpstream(t, "u"))
			subjects := []string{"ada", "a\x00b", "\x00", "\u202egpj", "\U0010ffff\ufffe", "'; DROP TABLE keys; --", "%00", "{}", "\r\nX: y", "a,b\"c", strings.Repeat("\x00", 255)}
			for _, subject := range subjects {
				tok := signer.Token("https://login.example", time.Now(), map[string]any{"sub": subject})
				for path, want := range map[string]int{"/a": http.StatusOK, "/missing": http.StatusNotFound} {
					if got := s.Through("gw.test", http.MethodGet, path, tok, ""); got.Status != want {
						t.Errorf("%q: got %d %s, want %d", subject, got.Status, got.Body, want)
					}
				}
			}
			for _, path := range []string{"/v1/requests?limit=100", "/v1/audit-log?kind=authentication&limit=100"} {
				awaittest.True(t, "the subjects to be in "+path, func() bool {
					r := s.Call("GET", path, s.AdminKey, "")
					var list struct{ Data []struct{ Subject *string } }
					if err := json.Unmarshal([]byte(r.Body), &list); err != nil || r.Status != http.StatusOK {
						t.Fatalf("%s: got %d %s", path, r.Status, r.Body)
					}
					found := map[string]bool{}
					for _, one := range list.Data {
						if one.Subject != nil {
							found[*one.Subject] = true
						}
					}
					for _, subject := range subjects {
						if !found[subject] {
							return false
						}
					}
					return true
				})
			}
		})
	}
}
