package e2e

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// workloadSigner signs tokens as GitHub and Kubernetes do: with RS256.
type workloadSigner struct{ key *rsa.PrivateKey }

func newWorkloadSigner(t *testing.T) workloadSigner {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return workloadSigner{key}
}

// jwks returns the JWK Set of the signer.
func (s workloadSigner) jwks() map[string]any {
	encode := base64.RawURLEncoding.EncodeToString
	return map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one", "n": encode(s.key.N.Bytes()), "e": encode(big.NewInt(int64(s.key.E)).Bytes()),
	}}}
}

// token returns a token with these claims, that lives from now on for ten minutes.
func (s workloadSigner) token(t *testing.T, claims map[string]any, more map[string]any) string {
	t.Helper()
	now := time.Now().Unix()
	all := map[string]any{"iat": now, "nbf": now, "exp": now + 600}
	for _, m := range []map[string]any{claims, more} {
		for name, value := range m {
			all[name] = value
		}
	}
	body, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"RS256","kid":"one","typ":"JWT"}`)) + "." + encode(body)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, s.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + encode(signature)
}

// issuerOfGuide returns the issuer of a section of docs/tokens.md, with keys given by hand: the test asks nobody for them.
func issuerOfGuide(t *testing.T, section string, s workloadSigner) map[string]any {
	t.Helper()
	page, err := os.ReadFile("../docs/tokens.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## "+section+"\n")
	_, text, _ = strings.Cut(text, "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	var file struct{ Issuers []map[string]any }
	if err := yaml.Unmarshal([]byte(text), &file); err != nil || len(file.Issuers) != 1 {
		t.Fatalf("the section %s has the issuers %v, %v; want one", section, file.Issuers, err)
	}
	file.Issuers[0]["jwks"] = s.jwks()
	return file.Issuers[0]
}

// Guarantee: with the settings of docs/tokens.md, tokens as GitHub Actions and Kubernetes write them reach a route and name their
// owner and subject; those of another organisation or service account, another audience or without a scope for the route do not.
func TestTokensOfWorkloads(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	github, cluster := newWorkloadSigner(t), newWorkloadSigner(t)
	var names []string
	for section, signer := range map[string]workloadSigner{"GitHub Actions": github, "Kubernetes": cluster} {
		record := issuerOfGuide(t, section, signer)
		if section == "Kubernetes" { // the last sentence of the section
			record["required"] = map[string]any{"sub": []string{"system:serviceaccount:shop:orders"}}
		}
		s.call(http.StatusCreated, "POST", "/v1/issuers", record)
		names = append(names, record["name"].(string))
	}
	id := s.call(http.StatusCreated, "POST", "/v1/gateways", map[string]any{"name": "deployments", "upstream_url": up.URL, "issuers": names, "default_auth": "token"}).field(t, "gateway_id")
	for _, path := range []string{"/deployments", "/orders"} {
		s.call(http.StatusCreated, "POST", "/v1/gateways/"+id+"/routes", map[string]any{"path": path, "methods": []string{"GET"}})
	}
	run := map[string]any{
		"iss": "https://token.actions.githubusercontent.com", "aud": "https://api.example.com", "jti": "0f1d7f2c-8d3e-4b59-a3b4-5f1d6f0f7c11",
		"sub": "repo:your-organisation/shop:ref:refs/heads/main", "repository": "your-organisation/shop", "repository_owner": "your-organisation",
		"repository_id": "74", "repository_visibility": "private", "ref": "refs/heads/main", "ref_type": "branch", "ref_protected": "true",
		"sha": "6113728f27ae82c7b1a177c8d03f9e96e0adf246", "workflow": "deploy", "run_id": "1658821493", "run_attempt": "2", "actor": "ada",
		"event_name": "push", "job_workflow_ref": "your-organisation/shop/.github/workflows/deploy.yml@refs/heads/main", "runner_environment": "github-hosted",
	}
	pod := map[string]any{
		"iss": "https://kubernetes.default.svc.cluster.local", "aud": []string{"https://api.example.com"}, "jti": "ea28ed49-2e11-4280-9ec5-bc3d1d84661a",
		"sub": "system:serviceaccount:shop:orders", "kubernetes.io": map[string]any{
			"namespace": "shop", "node": map[string]any{"name": "node-1", "uid": "646e7c5e-32d6-4d42-9dbd-e504e6cbe6b1"},
			"pod": map[string]any{"name": "orders-7c9b", "uid": "5e0bd49b-f040-43b0-99b7-22765a53f7f3"}, "serviceaccount": map[string]any{"name": "orders", "uid": "14ee3fa4-a7e2-420f-9f9a-dbc4507c3798"},
		},
	}
	for _, c := range []struct {
		what           string
		signer         workloadSigner
		claims, more   map[string]any
		path           string
		want           int
		owner, subject string
	}{
		{"a run", github, run, nil, "/deployments", 200, "github/your-organisation/shop", "repo:your-organisation/shop:ref:refs/heads/main"},
		{"a run of another organisation", github, run, map[string]any{"repository_owner": "stranger"}, "/deployments", 401, "", ""},
		{"a run for another audience", github, run, map[string]any{"aud": "https://github.com/your-organisation"}, "/deployments", 401, "", ""},
		{"a run on another route", github, run, nil, "/orders", 403, "", ""},
		{"a pod", cluster, pod, nil, "/deployments", 200, "cluster/system:serviceaccount:shop:orders", "system:serviceaccount:shop:orders"},
		{"a pod on another route", cluster, pod, nil, "/orders", 200, "cluster/system:serviceaccount:shop:orders", "system:serviceaccount:shop:orders"},
		{"another service account", cluster, pod, map[string]any{"sub": "system:serviceaccount:shop:web"}, "/deployments", 401, "", ""},
		{"a pod with the keys of GitHub", github, pod, nil, "/deployments", 401, "", ""},
	} {
		s.mustSend(c.want, "GET", c.path, c.signer.token(t, c.claims, c.more), "X-Case: "+c.what)
		requests := up.take()
		switch {
		case c.want != http.StatusOK && len(requests) != 0:
			t.Errorf("%s reached the service", c.what)
		case c.want == http.StatusOK && (len(requests) != 1 || requests[0].header.Get("X-Keygate-Key-Owner") != c.owner || requests[0].header.Get("X-Keygate-Subject") != url.PathEscape(c.subject)):
			t.Errorf("%s: the service got %v, want the owner %q and the subject %q", c.what, requests, c.owner, c.subject)
		}
	}
}
