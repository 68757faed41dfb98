package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/keygate/keygate/client"
)

const key = "kga_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := client.New(client.Config{URL: s.URL + "/", Key: key, Source: "cli", UserAgent: "test/1"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Guarantee: every call has the key, the User-Agent and the source, and each POST its
// own Idempotency-Key.
func TestCallsSendKeyAndSource(t *testing.T) {
	var got []http.Header
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Clone())
		_, _ = io.WriteString(w, `{"key_id": "key_1", "key": "secret"}`)
	})
	k, err := c.CreateKey(t.Context(), client.CreateKeyRequest{Name: "n", Scope: "read"})
	if err != nil || k.KeyID != "key_1" || k.Secret != "secret" {
		t.Fatalf("got key %+v, error %v, want key_1 with its secret", k, err)
	}
	if _, err := c.CreateKey(t.Context(), client.CreateKeyRequest{Name: "n", Scope: "read"}); err != nil {
		t.Fatal(err)
	}
	h := got[0]
	if h.Get("Authorization") != "Bearer "+key || h.Get("User-Agent") != "test/1" || h.Get("X-Keygate-Source") != "cli" || h.Get("Content-Type") != "application/json" {
		t.Errorf("got headers %v, want those of the Config", h)
	}
	if a, b := h.Get("Idempotency-Key"), got[1].Get("Idempotency-Key"); a == "" || a == b {
		t.Errorf("got Idempotency-Keys %q and %q, want two different ones", a, b)
	}
}

// Guarantee: an error response is an *Error with all of its fields.
func TestErrorResponseHasAllFields(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"error": "forbidden", "message": "m", "field": "f", "code": "scope_insufficient", "request_id": "req_1"}`)
	})
	_, err := c.Key(t.Context(), "key_1")
	var e *client.Error
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want an *Error", err)
	}
	want := client.Error{Status: 403, Code: "forbidden", Message: "m", Field: "f", AuthCode: "scope_insufficient", RequestID: "req_1", RetryAfter: 3 * time.Second}
	if !reflect.DeepEqual(*e, want) {
		t.Errorf("got %+v, want %+v", *e, want)
	}
	if client.IsNotFound(err) {
		t.Error("IsNotFound reports true for a 403")
	}
	if !client.IsNotFound(&client.Error{Status: 404}) {
		t.Error("IsNotFound reports false for a 404")
	}
}

// Guarantee: the error of a 422 has everything that is wrong with the request, the first in Field and
// Message.
func TestValidationErrorHasAllProblems(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"error": "validation_failed", "message": "m", "field": "a", "errors": [{"field": "a", "message": "m"}, {"message": "n", "line": 2}]}`)
	})
	_, err := c.Key(t.Context(), "key_1")
	var e *client.Error
	if !errors.As(err, &e) || e.Field != "a" || e.Message != "m" || len(e.Problems) != 2 {
		t.Fatalf("got error %+v, want two problems", e)
	}
	if first, second := e.Problems[0], e.Problems[1]; *first.Field != "a" || first.Message != "m" || second.Field != nil || second.Message != "n" || *second.Line != 2 {
		t.Errorf("got %+v and %+v, want those of the response", first, second)
	}
}

// Guarantee: a client reads the records of a newer server, which have fields that it does not know.
func TestUnknownFieldsOfResponsesAreIgnored(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"gateway_id": "gw_1", "name": "a", "colour": {"a": [1]}, "cors": {"origins": ["*"], "colour": 1}}`)
	})
	g, err := c.Gateway(t.Context(), "gw_1")
	if err != nil || g.GatewayID != "gw_1" || g.Cors == nil || len(g.Cors.Origins) != 1 {
		t.Errorf("got %+v, %v, want the gateway with its known fields", g, err)
	}
}

// Guarantee: a response that is not from Keygate is an error, and redirects are not
// followed, so that the key is sent to no other server.
func TestKeyIsSentToNoOtherServer(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	for name, h := range map[string]http.HandlerFunc{
		"a page":     func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"a 404 page": http.NotFound,
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) },
	} {
		c := serve(t, h)
		if _, err := c.Account(t.Context()); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// Guarantee: a call whose connection failed is retried, with the same Idempotency-Key,
// only if that cannot execute it twice.
func TestOnlyRepeatableCallsAreRetried(t *testing.T) {
	for _, tc := range []struct {
		name string
		call func(ctx context.Context, c *client.Client) error
		want int
	}{
		{"GET", func(ctx context.Context, c *client.Client) error { _, err := c.Key(ctx, "k"); return err }, 2},
		{"POST", func(ctx context.Context, c *client.Client) error {
			_, err := c.RotateKey(ctx, "k", client.RotateKeyRequest{})
			return err
		}, 2},
		{"PATCH", func(ctx context.Context, c *client.Client) error {
			_, err := c.UpdateKey(ctx, "k", client.KeyPatch{Name: client.Set("x")})
			return err
		}, 1},
		{"DELETE", func(ctx context.Context, c *client.Client) error { _, err := c.DeleteGateway(ctx, "g"); return err }, 1},
		{"PUT", func(ctx context.Context, c *client.Client) error {
			_, err := c.PushSpec(ctx, "g", nil, false)
			return err
		}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// A channel, because a broken connection does not synchronize the two sides.
			seen := make(chan string, 10)
			var calls atomic.Int32
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				seen <- r.Header.Get("Idempotency-Key")
				if calls.Add(1) == 1 {
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(w, `{}`)
			})
			err := tc.call(t.Context(), c)
			var keys []string
			for range len(seen) {
				keys = append(keys, <-seen)
			}
			if len(keys) != tc.want {
				t.Fatalf("got %d attempts, want %d", len(keys), tc.want)
			}
			var unreachable *client.UnreachableError
			if tc.want == 1 && !errors.As(err, &unreachable) {
				t.Errorf("got error %v, want an *UnreachableError", err)
			}
			if tc.want == 2 && err != nil {
				t.Errorf("got error %v, want the retry to succeed", err)
			}
			if tc.want == 2 && keys[0] != keys[1] {
				t.Errorf("got Idempotency-Keys %q, want the same one", keys)
			}
		})
	}
}

// Guarantee: a failed connection is an *UnreachableError that names the server and does
// not contain the key.
func TestFailedConnectionNamesTheServer(t *testing.T) {
	const url = "http://127.0.0.1:1" // the system never assigns this port
	c, err := client.New(client.Config{URL: url, Key: key, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Account(t.Context())
	var unreachable *client.UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), url) || strings.Contains(err.Error(), key) {
		t.Errorf("got error %v, want an *UnreachableError with the URL and without the key", err)
	}
}

// Guarantee: a list returns the records of all pages in order, requests no page after the
// caller has stopped, and ends at an error.
func TestListReadsAllPages(t *testing.T) {
	var queries []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.RawQuery)
		switch r.URL.Query().Get("cursor") {
		case "":
			_, _ = io.WriteString(w, `{"data": [{"key_id": "3"}, {"key_id": "2"}], "next_cursor": "c&1"}`)
		case "c&1":
			_, _ = io.WriteString(w, `{"data": [{"key_id": "1"}], "next_cursor": "end"}`)
		default:
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"error": "validation_failed", "message": "m", "field": "cursor"}`)
		}
	})
	var ids []string
	var failed error
	for k, err := range c.Keys(t.Context(), client.KeyFilter{State: "active"}) {
		if err != nil {
			failed = err
			break
		}
		ids = append(ids, k.KeyID)
	}
	if !slices.Equal(ids, []string{"3", "2", "1"}) || failed == nil {
		t.Errorf("got %v, error %v, want 3, 2, 1 and an error", ids, failed)
	}
	if queries[0] != "limit=100&state=active" || queries[1] != "cursor=c%261&limit=100&state=active" {
		t.Errorf("got queries %v, want the filter in both and the cursor in the second", queries)
	}
	queries = nil
	for range c.Keys(t.Context(), client.KeyFilter{ListOptions: client.ListOptions{PageSize: 2}}) {
		break
	}
	if len(queries) != 1 || queries[0] != "limit=2" {
		t.Errorf("got queries %v of a caller that stops, want one with limit=2", queries)
	}
}

// Guarantee: a patch encodes unchanged, cleared and set fields differently.
func TestPatchEncodesChanges(t *testing.T) {
	for _, tc := range []struct {
		patch any
		want  string
	}{
		{client.KeyPatch{}, `{}`},
		{client.KeyPatch{Owner: client.Clear[string](), Name: client.Set("")}, `{"name":"","owner":null}`},
		{client.RoutePatch{RateLimit: client.Clear[client.RateLimitPatch]()}, `{"rate_limit":null}`},
		{client.RoutePatch{RateLimit: client.Set(client.RateLimitPatch{Daily: client.Clear[string]()})}, `{"rate_limit":{"daily":null}}`},
	} {
		got, err := json.Marshal(tc.patch)
		if err != nil || string(got) != tc.want {
			t.Errorf("%+v: got %s, error %v, want %s", tc.patch, got, err, tc.want)
		}
	}
}

// Guarantee: New refuses an invalid address and an invalid key, and no error has a password.
func TestNewRefusesInvalidConfig(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:8081", "ftp://x", "http://", "http://user@x", "http://user:secret@x", "user:secret@x", "http://x?y", "http://x#y", "http://[::1"} {
		if _, err := client.New(client.Config{URL: bad}); err == nil {
			t.Errorf("New accepted URL %q", bad)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error has the password: %v", err)
		}
	}
	if _, err := client.New(client.Config{URL: "http://x", Key: "a\nb"}); err == nil {
		t.Error("New accepted a key with a line break")
	}
}

// Guarantee: the client has a method for every call of api/openapi.yaml, with its HTTP
// method and path.
func TestClientCoversTheDocument(t *testing.T) {
	want := documentedCalls(t)
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.Path)
		_, _ = io.WriteString(w, `{}`)
	})
	ctx := t.Context()
	discard := func(_ any, err error) {
		if err != nil {
			t.Error(err)
		}
	}
	discard(c.Account(ctx))
	discard(c.Settings(ctx))
	callAccounts(ctx, c, discard)
	for range c.Gateways(ctx, client.ListOptions{}) {
		break
	}
	discard(c.CreateGateway(ctx, client.CreateGatewayRequest{}))
	discard(c.Gateway(ctx, "{gateway_id}"))
	discard(c.Validation(ctx, "{gateway_id}"))
	discard(c.UpdateGateway(ctx, "{gateway_id}", client.GatewayPatch{}))
	discard(c.DeleteGateway(ctx, "{gateway_id}"))
	for range c.Routes(ctx, "{gateway_id}", client.ListOptions{}) {
		break
	}
	discard(c.Try(ctx, "{gateway_id}", client.TryRequest{}))
	discard(c.CreateRoute(ctx, "{gateway_id}", client.CreateRouteRequest{}))
	discard(c.Route(ctx, "{gateway_id}", "{route_id}"))
	discard(c.UpdateRoute(ctx, "{gateway_id}", "{route_id}", client.RoutePatch{}))
	discard(c.UpdateRouteLimit(ctx, "{gateway_id}", "{route_id}", client.RoutePatch{}))
	discard(c.DeleteRoute(ctx, "{gateway_id}", "{route_id}"))
	discard(c.Spec(ctx, "{gateway_id}"))
	discard(c.PushSpec(ctx, "{gateway_id}", nil, true))
	discard(c.Config(ctx, "{gateway_id}"))
	discard(c.PushConfig(ctx, "{gateway_id}", nil, true))
	for range c.Revisions(ctx, "{gateway_id}", client.ListOptions{}) {
		break
	}
	discard(c.Revision(ctx, "{gateway_id}", 1))
	discard(c.RevisionContent(ctx, "{gateway_id}", 1))
	discard(c.DiffRevisions(ctx, "{gateway_id}", 2, 1))
	discard(c.Rollback(ctx, "{gateway_id}", 1, true))
	discard(c.Repository(ctx, "{gateway_id}"))
	discard(c.PutRepository(ctx, "{gateway_id}", client.RepositoryInput{}))
	discard(c.DeleteRepository(ctx, "{gateway_id}"))
	discard(c.SyncRepository(ctx, "{gateway_id}"))
	discard(c.ResumeRepository(ctx, "{gateway_id}"))
	for range c.Keys(ctx, client.KeyFilter{}) {
		break
	}
	discard(c.CreateKey(ctx, client.CreateKeyRequest{}))
	discard(c.Key(ctx, "{key_id}"))
	discard(c.UpdateKey(ctx, "{key_id}", client.KeyPatch{}))
	discard(c.RevokeKey(ctx, "{key_id}"))
	discard(c.RotateKey(ctx, "{key_id}", client.RotateKeyRequest{}))
	discard(c.ImportKeys(ctx, client.ImportKeysRequest{}))
	discard(c.VerifyKey(ctx, client.VerifyKeyRequest{}))
	callOwnersAndPlans(ctx, c, discard)
	callIssuers(ctx, c, discard)
	callCertificates(ctx, c, discard)
	callQuotas(ctx, c, discard)
	callUpstreams(ctx, c, discard)
	callWebhooks(ctx, c, discard)
	for range c.AuditLog(ctx, client.AuditFilter{}) {
		break
	}
	for range c.FollowRequests(ctx, client.RequestFilter{}) {
		break
	}
	discard(c.AuditHead(ctx))
	discard(c.Traffic(ctx, client.TrafficQuery{}))
	discard(c.Top(ctx, client.TrafficQuery{}, "", 0))
	for range c.Requests(ctx, client.RequestFilter{}) {
		break
	}
	discard(c.RequestByID(ctx, "{request_id}"))
	for range c.Limits(ctx, "{gateway_id}", client.ListOptions{}) {
		break
	}
	discard(c.SimulateLimit(ctx, "{gateway_id}", client.SimulateRequest{}))
	// The calls of browsers, of Git servers and of tools.
	for _, one := range []client.Request{
		{Method: http.MethodPost, Path: "/v1/session"}, {Method: http.MethodGet, Path: "/v1/session"},
		{Method: http.MethodGet, Path: "/v1/session/sso"}, {Method: http.MethodGet, Path: "/v1/session/sso/callback"},
		{Method: http.MethodPost, Path: "/v1/hooks/git/{gateway_id}"},
		{Method: http.MethodGet, Path: "/v1/openapi.json"}, {Method: http.MethodGet, Path: "/v1/openapi.yaml"},
	} {
		discard(c.Do(ctx, &one))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got calls %q\nwant       %q", got, want)
	}
}

// callUpstreams makes the calls on upstreams and their targets.
func callUpstreams(ctx context.Context, c *client.Client, discard func(any, error)) {
	for range c.Upstreams(ctx, "{gateway_id}", client.ListOptions{}) {
		break
	}
	discard(c.Upstream(ctx, "{gateway_id}", "{upstream}"))
	discard(c.PutUpstream(ctx, "{gateway_id}", "{upstream}", client.UpstreamPatch{}))
	discard(c.UpdateUpstream(ctx, "{gateway_id}", "{upstream}", client.UpstreamPatch{}))
	discard(c.DeleteUpstream(ctx, "{gateway_id}", "{upstream}"))
	discard(c.AddTarget(ctx, "{gateway_id}", "{upstream}", client.AddTargetRequest{}))
	discard(c.UpdateTarget(ctx, "{gateway_id}", "{upstream}", "https://a", client.TargetPatch{}))
	discard(c.DeleteTarget(ctx, "{gateway_id}", "{upstream}", "https://a"))
	discard(c.ReturnTarget(ctx, "{gateway_id}", "{upstream}", "https://a"))
	for range c.Canaries(ctx, "{gateway_id}", client.ListOptions{}) {
		break
	}
	discard(c.Canary(ctx, "{gateway_id}", "{canary_id}"))
	discard(c.StartCanary(ctx, "{gateway_id}", client.StartCanaryRequest{}))
	discard(c.PauseCanary(ctx, "{gateway_id}", "{canary_id}"))
	discard(c.ResumeCanary(ctx, "{gateway_id}", "{canary_id}"))
	discard(c.PromoteCanary(ctx, "{gateway_id}", "{canary_id}"))
	discard(c.AbortCanary(ctx, "{gateway_id}", "{canary_id}"))
}

// callAccounts makes the operator's calls.
func callAccounts(ctx context.Context, c *client.Client, discard func(any, error)) {
	for range c.Accounts(ctx, client.AccountFilter{}) {
		break
	}
	for range c.Nodes(ctx, client.ListOptions{}) {
		break
	}
	discard(c.CreateAccount(ctx, client.CreateAccountRequest{}))
	discard(c.AccountByID(ctx, "{account_id}"))
	discard(c.UpdateAccount(ctx, "{account_id}", client.AccountPatch{}))
	discard(c.DeleteAccount(ctx, "{account_id}"))
	discard(c.Node(ctx, "{node_id}"))
	discard(c.DeleteNode(ctx, "{node_id}"))
}

// documentedCalls returns the HTTP methods and paths in api/openapi.yaml.
func documentedCalls(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile("../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]any `yaml:"paths"`
	}
	if err := yaml.Unmarshal(content, &doc); err != nil {
		t.Fatal(err)
	}
	number := regexp.MustCompile(`\{number\}`)
	var calls []string
	for path, item := range doc.Paths {
		for method := range item {
			if m := strings.ToUpper(method); slices.Contains([]string{"GET", "PUT", "POST", "PATCH", "DELETE"}, m) {
				calls = append(calls, fmt.Sprintf("%s %s", m, number.ReplaceAllString(path, "1")))
			}
		}
	}
	return calls
}

// Guarantee: IfMatch sends the ETag that GatewayWithETag returned, with a push and with a deletion.
func TestIfMatchSendsTheETag(t *testing.T) {
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.Header.Get("If-Match"))
		w.Header().Set("ETag", `"7"`)
		_, _ = io.WriteString(w, `{}`)
	})
	_, etag, err := c.GatewayWithETag(t.Context(), "gw_1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PushConfig(t.Context(), "gw_1", []byte("routes: []"), false, client.IfMatch(etag)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteGateway(t.Context(), "gw_1", client.IfMatch(etag)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"GET ", `PUT "7"`, `DELETE "7"`}; !slices.Equal(got, want) {
		t.Errorf("got If-Match %q, want %q", got, want)
	}
}

// Guarantee: a list or report that lacks the newest records says so through Config.Incomplete.
func TestIncompleteListsAreReported(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("format") {
			w.Header().Set("X-Keygate-Incomplete", "export")
			return
		}
		_, _ = fmt.Fprintf(w, `{"data": [], "next_cursor": null, "incomplete": true, "incomplete_reason": %q, "effect": {"incomplete_reason": %[1]q}}`, r.URL.Path)
	}))
	defer s.Close()
	var got []string
	c, err := client.New(client.Config{URL: s.URL, Key: "k", Incomplete: func(reason string) { got = append(got, reason) }})
	if err != nil {
		t.Fatal(err)
	}
	for range c.AuditLog(t.Context(), client.AuditFilter{}) {
		t.Error("got a record, want none")
	}
	_, errTraffic := c.Traffic(t.Context(), client.TrafficQuery{})
	_, errTop := c.Top(t.Context(), client.TrafficQuery{}, "", 0)
	_, errUsage := c.KeyUsage(t.Context(), "k")
	body, errExport := c.OpenAuditExport(t.Context(), client.FormatCSV, client.AuditFilter{})
	_, errSimulate := c.SimulateLimit(t.Context(), "g", client.SimulateRequest{})
	_, errPush := c.PushConfig(t.Context(), "g", nil, true, client.WithEffect())
	_, errRollback := c.Rollback(t.Context(), "g", 1, true, client.WithEffect())
	if err := errors.Join(errTraffic, errTop, errUsage, errExport, errSimulate, errPush, errRollback); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = body.Close() }()
	want := []string{
		"/v1/audit-log", "/v1/reports/traffic", "/v1/reports/top", "/v1/keys/k/usage", "export",
		"/v1/gateways/g/limits/simulate", "/v1/gateways/g/config", "/v1/gateways/g/revisions/1/rollback",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func callOwnersAndPlans(ctx context.Context, c *client.Client, discard func(any, error)) {
	discard(c.UpdateAccountDefaults(ctx, client.AccountDefaultsPatch{}))
	for range c.Owners(ctx, client.OwnerFilter{}) {
		break
	}
	discard(c.CreateOwner(ctx, client.CreateOwnerRequest{}))
	discard(c.Owner(ctx, "{owner_id}"))
	discard(c.UpdateOwner(ctx, "{owner_id}", client.OwnerPatch{}))
	discard(c.DeleteOwner(ctx, "{owner_id}"))
	for range c.Plans(ctx, client.PlanFilter{}) {
		break
	}
	discard(c.CreatePlan(ctx, client.CreatePlanRequest{}))
	discard(c.Plan(ctx, "{plan_id}"))
	discard(c.UpdatePlan(ctx, "{plan_id}", client.PlanPatch{}))
	discard(c.DeletePlan(ctx, "{plan_id}"))
	for range c.KeysOfPlan(ctx, "{plan_id}", client.ListOptions{}) {
		break
	}
	for range c.OwnersOfPlan(ctx, "{plan_id}", client.ListOptions{}) {
		break
	}
}

func callIssuers(ctx context.Context, c *client.Client, discard func(any, error)) {
	for range c.Issuers(ctx, client.IssuerFilter{}) {
		break
	}
	discard(c.CreateIssuer(ctx, client.CreateIssuerRequest{JWKS: []byte("{}")}))
	discard(c.Issuer(ctx, "{issuer_id}"))
	discard(c.UpdateIssuer(ctx, "{issuer_id}", client.IssuerPatch{}))
	discard(c.RefreshIssuer(ctx, "{issuer_id}"))
	discard(c.DeleteIssuer(ctx, "{issuer_id}"))
	for range c.Users(ctx, client.UserFilter{}) {
		break
	}
	for range c.Invitations(ctx, client.ListOptions{}) {
		break
	}
	discard(c.User(ctx, "{user_id}"))
	for range c.UserTokens(ctx, "{user_id}", client.ListOptions{}) {
		break
	}
	discard(c.RevokeUserToken(ctx, "{user_id}", "{token_id}"))
	discard(c.RevokeUserTokens(ctx, "{user_id}"))
	discard(nil, c.SignOut(ctx))
	discard(c.SignInProvider(ctx))
	discard(c.RedeemSignInCode(ctx, client.RedeemCodeRequest{}))
	discard(c.BeginDevice(ctx, client.BeginDeviceRequest{}))
	discard(c.RedeemDevice(ctx, "x"))
	discard(c.Device(ctx, "x"))
	discard(c.DecideDevice(ctx, "x", true))
	discard(c.UpdateUser(ctx, "{user_id}", client.UserPatch{}))
	discard(c.DeleteUser(ctx, "{user_id}"))
	discard(c.Invite(ctx, client.InvitationRequest{}))
	discard(c.DeleteInvitation(ctx, "{invitation_id}"))
	for range c.Denials(ctx, "{issuer_id}", client.DenialFilter{}) {
		break
	}
	discard(c.CreateDenial(ctx, "{issuer_id}", client.CreateDenialRequest{}))
	discard(c.Denial(ctx, "{issuer_id}", "{denial_id}"))
	discard(c.DeleteDenial(ctx, "{issuer_id}", "{denial_id}"))
}

func callCertificates(ctx context.Context, c *client.Client, discard func(any, error)) {
	for range c.Certificates(ctx, client.CertificateFilter{}) {
		break
	}
	discard(c.Certificate(ctx, "{certificate_id}"))
	discard(c.RenewCertificate(ctx, "{certificate_id}"))
}

func callQuotas(ctx context.Context, c *client.Client, discard func(any, error)) {
	discard(c.OwnerUsage(ctx, "{owner_id}"))
	discard(c.KeyUsage(ctx, "{key_id}"))
	discard(c.GrantToOwner(ctx, "{owner_id}", client.CreateGrantRequest{}))
	discard(c.GrantToKey(ctx, "{key_id}", client.CreateGrantRequest{}))
	for range c.OwnerGrants(ctx, "{owner_id}", client.ListOptions{}) {
		break
	}
	for range c.KeyGrants(ctx, "{key_id}", client.ListOptions{}) {
		break
	}
	for range c.UsageRecords(ctx, client.UsageFilter{}) {
		break
	}
}
