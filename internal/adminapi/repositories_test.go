package adminapi_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// syncer records the calls that it gets. In its Sync, onSync stands for the sync of a repository.
type syncer struct {
	mu     sync.Mutex
	asked  []string
	onSync func(ctx context.Context, gatewayID string)
}

func (s *syncer) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, what)
}

// take returns the calls since its last call.
func (s *syncer) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.asked = nil }()
	return strings.Join(s.asked, " ")
}

func (s *syncer) Check(r control.RepositorySource) error {
	if strings.HasPrefix(r.URL, "file:") && !r.Operator {
		return fault.Invalid("url", "is not allowed")
	}
	return nil
}
func (s *syncer) Changed(string, string) { s.note("changed") }
func (s *syncer) Wake(string, string)    { s.note("wake") }
func (s *syncer) Running(string) bool    { return false }
func (s *syncer) Sync(ctx context.Context, _, gatewayID string) error {
	s.note("sync")
	if s.onSync != nil {
		s.onSync(ctx, gatewayID)
	}
	return nil
}

const repositoryBody = `{"url": "https://git.example.com/api.git", "branch": "main", "path": "api/openapi.yaml", "kind": "spec"`

func (s *server) putRepository(gatewayID, more string) *response {
	s.t.Helper()
	return s.do(request{method: "PUT", path: "/v1/gateways/" + gatewayID + "/repository", body: repositoryBody + more + "}"})
}

// Guarantee: contract 5, the record of a repository has every field, shows no secret, and its ETag
// changes only with a management call.
func TestRepositoryRecord(t *testing.T) {
	s := start(t)
	id := s.newGateway("")
	path := "/v1/gateways/" + id + "/repository"
	s.get(path).refused(404, "not_found", "")
	created := s.putRepository(id, "").want(200)
	secret := created.text("hook_secret")
	if !strings.HasPrefix(secret, "kgh_") || len(secret) < 40 {
		t.Errorf("got hook_secret %q", secret)
	}
	delete(created.json, "hook_secret")
	want := map[string]any{
		"gateway_id": id, "url": "https://git.example.com/api.git", "branch": "main", "path": "api/openapi.yaml", "kind": "spec", "interval": "60s",
		"credential": nil, "known_hosts": nil, "host_key": nil, "commit_status": nil, "state": "syncing", "last_commit": nil, "last_synced_at": nil,
		"last_attempt_at": nil, "next_sync_at": nil, "last_error": nil, "warnings": []any{}, "created_at": "2027-03-01T12:00:00Z",
	}
	got := s.get(path).want(200)
	if !reflect.DeepEqual(created.json, want) || !reflect.DeepEqual(got.json, want) || got.header.Get("ETag") != `"1"` {
		t.Errorf("got\n%v\n%v %s\nwant\n%v", created.json, got.json, got.header.Get("ETag"), want)
	}
	if r := s.putRepository(id, ""); r.json["hook_secret"] != nil || r.header.Get("ETag") != `"1"` {
		t.Errorf("the same PUT again: got %s, want no new secret and the same ETag", r.raw)
	}
	full := s.putRepository(id, `, "interval": "90s", "credential": {"username": "u", "password": "correct horse"}, "known_hosts": "a b c",
		"commit_status": {"provider": "gitea", "token": "battery"}, "hook_secret": "auto"`).want(200)
	renewed := full.text("hook_secret")
	if renewed == "" || renewed == secret || full.text("credential") != "***" || full.text("interval") != "90s" || full.header.Get("ETag") != `"2"` {
		t.Errorf("got %s, want a new secret, a hidden credential and the interval as given", full.raw)
	}
	if status := full.json["commit_status"]; !reflect.DeepEqual(status, map[string]any{"provider": "gitea", "token": "***"}) {
		t.Errorf("got commit_status %v", status)
	}
	audit := s.get("/v1/audit-log?kind=management").want(200)
	for _, hidden := range []string{"correct horse", "battery", secret, renewed} {
		if strings.Contains(s.get(path).raw+audit.raw, hidden) || strings.Contains(strings.ReplaceAll(full.raw, renewed, ""), hidden) {
			t.Errorf("the secret %q is shown again", hidden)
		}
	}
	if asked := s.repos.take(); asked != "changed changed changed" {
		t.Errorf("asked for %q, want a sync after each PUT", asked)
	}
	if gone := s.do(request{method: "DELETE", path: path}).want(200); gone.text("url") != want["url"] {
		t.Errorf("DELETE returned %s, want the record as it was", gone.raw)
	}
	s.get(path).refused(404, "not_found", "")
	s.do(request{method: "DELETE", path: path}).refused(404, "not_found", "")
	for _, call := range []string{"/sync", "/resume"} {
		s.do(request{method: "POST", path: path + call}).refused(404, "not_found", "")
	}
}

// Guarantee: every field that is wrong is reported, and nothing is stored.
func TestRepositoryFieldsAreChecked(t *testing.T) {
	s := start(t)
	id := s.newGateway("")
	path := "/v1/gateways/" + id + "/repository"
	for _, test := range []struct{ change, with, field string }{
		{`"kind": "spec"`, `"kind": "yaml"`, "kind"},
		{`"branch": "main", `, ``, "branch"},
		{`"kind": "spec"`, `"kind": "spec", "interval": "9s"`, "interval"},
		{`"kind": "spec"`, `"kind": "spec", "interval": "25h"`, "interval"},
		{`"kind": "spec"`, `"kind": "spec", "interval": 60`, "interval"},
		{`"kind": "spec"`, `"kind": "spec", "credential": "secret"`, "credential"},
		{`"kind": "spec"`, `"kind": "spec", "credential": "***"`, "credential"},
		{`"kind": "spec"`, `"kind": "spec", "credential": {}`, "credential"},
		{`"kind": "spec"`, `"kind": "spec", "credential": {"key": "x"}`, "credential.key"},
		{`"kind": "spec"`, `"kind": "spec", "commit_status": {"provider": "svn", "token": "x"}`, "commit_status.provider"},
		{`"kind": "spec"`, `"kind": "spec", "commit_status": {"provider": "github", "token": "***"}`, "commit_status.token"},
		{`"kind": "spec"`, `"kind": "spec", "commit_status": {"provider": "github", "token": "a b"}`, "commit_status.token"},
		{`"kind": "spec"`, `"kind": "spec", "hook_secret": "mine"`, "hook_secret"},
		{`"kind": "spec"`, `"kind": "spec", "host_key": "MD5:aa"`, "host_key"},
		{`"kind": "spec"`, `"kind": "spec", "state": "ok"`, "state"},
	} {
		body := strings.Replace(repositoryBody+"}", test.change, test.with, 1)
		s.do(request{method: "PUT", path: path, body: body}).refused(422, "validation_failed", test.field)
	}
	s.do(request{method: "PUT", path: path, body: repositoryBody + "}", header: map[string]string{"If-Match": "*"}}).refused(412, "precondition_failed", "")
	s.get(path).refused(404, "not_found", "")
	tenant := s.newAccount("tenant")
	theirs := s.newGateway(tenant)
	s.do(request{method: "PUT", path: "/v1/gateways/" + theirs + "/repository", key: tenant,
		body: strings.Replace(repositoryBody+"}", "https://git.example.com/api.git", "file:///srv/git", 1)}).refused(422, "validation_failed", "url")
	s.putRepository(id, "").want(200)
	s.do(request{method: "PUT", path: path, body: repositoryBody + "}", header: map[string]string{"If-Match": `"7"`}}).refused(412, "precondition_failed", "")
}

// Guarantee: the call waits for its sync and returns 200 with its result, also for a bad commit. A
// replay returns the same.
func TestSyncReturnsItsResult(t *testing.T) {
	s := start(t)
	id := s.newGateway("")
	path := "/v1/gateways/" + id + "/repository"
	s.putRepository(id, "").want(200)
	s.repos.onSync = func(ctx context.Context, gatewayID string) {
		if err := s.control.RecordSync(ctx, gatewayID, 1, func(r *gateway.ConnectedRepository) *event.SyncFailed {
			r.LastError, r.FailedCommit, r.LastAttemptAt = "api/openapi.yaml: line 2, column 5: \x1b is wrong", "c1", s.clock.Now()
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	call := request{method: "POST", path: path + "/sync", header: map[string]string{"Idempotency-Key": "once"}}
	first := s.do(call).want(200)
	if first.text("state") != "error" || !strings.Contains(first.text("last_error"), "line 2, column 5") {
		t.Errorf("got %s, want the error of the commit", first.raw)
	}
	again := s.do(call).want(200)
	if again.raw != first.raw || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %s, want the same response again", again.raw)
	}
	if asked := s.repos.take(); asked != "changed sync" {
		t.Errorf("asked for %q, want one sync", asked)
	}
}

// Guarantee: contract 5, a rollback pauses the sync in the same transaction and says so; resume and
// sync end the pause; another push says that the next commit replaces it.
func TestRollbackPausesTheSync(t *testing.T) {
	s := start(t)
	id := s.newGateway("")
	s.putSpec(id, petSpec).want(200)
	path := "/v1/gateways/" + id + "/repository"
	s.putRepository(id, "").want(200)
	warnings := func(r *response) string { return fmt.Sprint(r.want(200).json["warnings"]) }
	if got := warnings(s.putSpec(id, petSpec+"  /a:\n    get: {responses: {}}\n")); !strings.Contains(got, "its next commit replaces") {
		t.Errorf("a push warns %s, want that the next commit replaces it", got)
	}
	rollback := request{method: "POST", path: "/v1/gateways/" + id + "/revisions/1/rollback"}
	for _, end := range []string{"/resume", "/sync"} {
		if got := warnings(s.do(rollback)); !strings.Contains(got, "paused") {
			t.Errorf("the rollback warns %s, want that the sync is paused", got)
		}
		paused := s.get(path).want(200)
		if paused.text("state") != "paused" || paused.json["next_sync_at"] != nil {
			t.Errorf("got %s, want it paused", paused.raw)
		}
		if got := warnings(s.putSpec(id, petSpec+"  /b:\n    get: {responses: {}}\n")); strings.Contains(got, "repository") {
			t.Errorf("a push during the pause warns %s", got)
		}
		s.do(request{method: "POST", path: path + end, header: map[string]string{"If-Match": `"1"`}}).refused(412, "precondition_failed", "")
		s.repos.take()
		if got := s.do(request{method: "POST", path: path + end}).want(200); got.text("state") == "paused" || got.header.Get("ETag") == paused.header.Get("ETag") {
			t.Errorf("%s: got %s, want the pause ended, with a new ETag", end, got.raw)
		}
		if asked, want := s.repos.take(), map[string]string{"/resume": "wake", "/sync": "sync"}[end]; asked != want {
			t.Errorf("%s asked for %q, want %q", end, asked, want)
		}
	}
}

// hook is a push hook. sign adds the signature of a kind with the secret.
type hook struct {
	gatewayID, kind, secret, body string
	header                        map[string]string
}

func (s *server) hook(h hook) *response {
	s.t.Helper()
	mac := hmac.New(sha256.New, []byte(h.secret))
	mac.Write([]byte(h.body))
	digest := hex.EncodeToString(mac.Sum(nil))
	header := map[string]string{"Content-Type": "application/json"}
	switch h.kind {
	case "github":
		header["X-Hub-Signature-256"] = "sha256=" + digest
	case "gitea":
		header["X-Gitea-Signature"] = digest
	case "gitlab":
		header["X-Gitlab-Token"] = h.secret
	}
	for name, value := range h.header {
		header[name] = value
	}
	return s.do(request{method: http.MethodPost, path: "/v1/hooks/git/" + h.gatewayID, key: "-", body: h.body, header: header})
}

// Guarantee: a signed hook begins a sync; a hook for another branch, another event or a paused
// repository does nothing.
func TestPushHooks(t *testing.T) {
	s := start(t)
	id := s.newGateway("")
	secret := s.putRepository(id, "").want(200).text("hook_secret")
	push := `{"ref": "refs/heads/main", "after": "c1"}`
	form := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	for name, test := range map[string]struct {
		hook
		started bool
	}{
		"github":         {hook{kind: "github", body: push, header: map[string]string{"X-GitHub-Event": "push"}}, true},
		"github form":    {hook{kind: "github", body: "payload=%7B%22ref%22%3A%22refs%2Fheads%2Fmain%22%7D", header: form}, true},
		"gitea":          {hook{kind: "gitea", body: push}, true},
		"gitlab":         {hook{kind: "gitlab", body: push, header: map[string]string{"X-Gitlab-Event": "Push Hook"}}, true},
		"without a body": {hook{kind: "github"}, true},
		"ping":           {hook{kind: "github", body: `{"zen": "x"}`, header: map[string]string{"X-GitHub-Event": "ping"}}, false},
		"another branch": {hook{kind: "github", body: `{"ref": "refs/heads/dev"}`}, false},
		"a tag":          {hook{kind: "github", body: `{"ref": "refs/tags/main"}`}, false},
	} {
		s.repos.take()
		test.gatewayID, test.secret = id, secret
		if r := s.hook(test.hook).want(200); r.json["started"] != test.started || (s.repos.take() == "wake") != test.started {
			t.Errorf("%s: got %s, want started: %t", name, r.raw, test.started)
		}
	}
	s.hook(hook{gatewayID: id, kind: "github", secret: secret, body: "{"}).refused(400, "invalid_json", "")
	s.hook(hook{gatewayID: id, kind: "github", secret: secret, body: push, header: map[string]string{"Content-Type": "text/plain"}}).refused(415, "unsupported_media_type", "")
	s.putSpec(id, petSpec).want(200)
	s.do(request{method: "POST", path: "/v1/gateways/" + id + "/revisions/1/rollback"}).want(200)
	s.repos.take()
	if r := s.hook(hook{gatewayID: id, kind: "github", secret: secret, body: push}).want(200); r.json["started"] != false || s.repos.take() != "" {
		t.Errorf("paused: got %s, want started: false", r.raw)
	}
}

// Guarantee: hooks that cannot be verified get the same 401, whatever is wrong, and after sixty of
// them in a minute a 429. Hooks that can be verified are bounded for each gateway, without effect
// on other gateways.
func TestPushHooksAreRefusedAlike(t *testing.T) {
	s := start(t)
	id, other, bare := s.newGateway(""), s.newGateway(""), s.newGateway("")
	secret := s.putRepository(id, "").want(200).text("hook_secret")
	otherSecret := s.putRepository(other, "").want(200).text("hook_secret")
	tenant, tenantKey := s.tenant("acme")
	suspended := s.newGateway(tenantKey)
	theirs := s.do(request{method: "PUT", path: "/v1/gateways/" + suspended + "/repository", key: tenantKey, body: repositoryBody + "}"}).want(200).text("hook_secret")
	s.patchAccount(tenant, `{"state": "suspended"}`).want(200)
	s.repos.take()
	bodies := map[string]bool{}
	n := 0
	for _, h := range []hook{
		{gatewayID: id, body: "{}"}, {gatewayID: id, kind: "github", secret: "kgh_wrong", body: "{}"}, {gatewayID: id, kind: "gitlab", secret: "kgh_wrong"},
		{gatewayID: id, kind: "github", secret: otherSecret, body: "{}"}, {gatewayID: bare, kind: "github", secret: secret, body: "{}"},
		{gatewayID: "gw_01jz8y5c3te9b8r2m6q4v7x0aa", kind: "github", secret: secret}, {gatewayID: "gw_x", kind: "gitea", secret: secret},
		{gatewayID: id, kind: "gitlab", secret: ""}, {gatewayID: suspended, kind: "github", secret: theirs, body: "{}"},
		{gatewayID: id, body: "{}", header: map[string]string{"Authorization": "Bearer " + s.admin}},
	} {
		n++
		r := s.hook(h).refused(401, "unauthorized", "")
		bodies[strings.ReplaceAll(r.raw, r.header.Get("X-Request-Id"), "")] = true
	}
	if len(bodies) != 1 {
		t.Errorf("got %d different responses, want one: %v", len(bodies), bodies)
	}
	large := strings.Repeat("x", 1<<20+1)
	s.hook(hook{gatewayID: id, kind: "github", secret: secret, body: large}).refused(413, "body_too_large", "")
	s.hook(hook{gatewayID: bare, kind: "github", secret: secret, body: large}).refused(413, "body_too_large", "")
	for ; n < 60; n++ {
		s.hook(hook{gatewayID: id, kind: "github", secret: "wrong"}).refused(401, "unauthorized", "")
	}
	if r := s.hook(hook{gatewayID: id, kind: "github", secret: secret}).refused(429, "rate_limit_exceeded", ""); r.header.Get("Retry-After") == "" {
		t.Error("the 429 has no Retry-After")
	}
	if asked := s.repos.take(); asked != "" {
		t.Errorf("hooks that were refused asked for %q", asked)
	}
	s.clock.move(time.Minute)
	for range 60 {
		s.hook(hook{gatewayID: id, kind: "github", secret: secret}).want(200)
	}
	s.hook(hook{gatewayID: id, kind: "github", secret: secret}).refused(429, "rate_limit_exceeded", "")
	s.hook(hook{gatewayID: other, kind: "github", secret: otherSecret}).want(200)
}
