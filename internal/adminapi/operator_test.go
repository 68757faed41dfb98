package adminapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// tenant creates an account through the API.
func (s *server) tenant(name string) (accountID, key string) {
	s.t.Helper()
	r := s.post("/v1/accounts", map[string]any{"name": name, "plan": "starter", "hosts": []string{"*." + name + ".example"}}).want(201)
	return r.text("account_id"), r.text("key")
}

func (s *server) patchAccount(accountID, body string) *response {
	s.t.Helper()
	return s.do(request{method: http.MethodPatch, path: "/v1/accounts/" + accountID, body: body})
}

// Guarantee: only keys of the account default may call /v1/accounts: any other gets a 403 with
// the code scope_insufficient, for its own account too, and learns nothing.
func TestOnlyTheOperatorManagesAccounts(t *testing.T) {
	s := start(t)
	accountID, key := s.tenant("acme")
	for _, q := range operations(t) {
		if !strings.HasPrefix(q.path, "/v1/accounts") {
			continue
		}
		for _, id := range []string{accountID, s.operator(), "acct_x"} {
			call := q
			call.path, call.key = strings.ReplaceAll(q.path, "{account_id}", id), key
			r := s.do(call).refused(403, "forbidden", "")
			if r.text("code") != "scope_insufficient" {
				t.Errorf("%s: got %s, want code scope_insufficient", r.what, r.raw)
			}
		}
	}
	if got := s.do(request{method: "GET", path: "/v1/account", key: key}).want(200); got.text("account_id") != accountID || got.text("state") != "active" {
		t.Errorf("the account's own view: got %s", got.raw)
	}
}

// Guarantee: the operator creates, lists, reads and changes accounts, with ETags.
func TestAccountCalls(t *testing.T) {
	s := start(t)
	const fields = "account_id name plan state hosts audit_retention_days created_at"
	made := s.post("/v1/accounts", map[string]any{"name": "acme", "plan": "starter", "hosts": []string{"*.acme.example"}}).want(201)
	wantFields(t, made.json, fields+" key_id key")
	accountID := made.text("account_id")
	if made.header.Get("Location") != "/v1/accounts/"+accountID || made.header.Get("ETag") != `"1"` {
		t.Errorf("got headers %v, want Location and ETag", made.header)
	}
	s.do(request{method: "GET", path: "/v1/keys", key: made.text("key")}).want(200)
	got := s.get("/v1/accounts/" + accountID).want(200)
	wantFields(t, got.json, fields)
	if got.text("state") != "active" || got.json["audit_retention_days"] != 90.0 || got.header.Get("ETag") != `"1"` {
		t.Errorf("got %s, want an active account with 90 days of retention", got.raw)
	}
	changed := s.do(request{method: "PATCH", path: "/v1/accounts/" + accountID, body: `{"plan": "scale", "name": "acme 2", "hosts": null}`, header: map[string]string{"If-Match": `"1"`}}).want(200)
	if changed.json["audit_retention_days"] != 365.0 || changed.text("name") != "acme 2" || len(changed.json["hosts"].([]any)) != 0 || changed.header.Get("ETag") != `"2"` {
		t.Errorf("got %s, want the new plan and name, without patterns, at version 2", changed.raw)
	}
	s.do(request{method: "PATCH", path: "/v1/accounts/" + accountID, body: `{"plan": "starter"}`, header: map[string]string{"If-Match": `"1"`}}).refused(412, "precondition_failed", "")
	s.post("/v1/accounts", map[string]any{"name": "acme 2", "plan": "scale"}).refused(409, "conflict", "name")
	s.post("/v1/accounts", map[string]any{"name": "x", "plan": "free"}).refused(422, "validation_failed", "plan")
	s.post("/v1/accounts", map[string]any{"name": "x", "plan": "scale", "hosts": []string{"a.example", "*"}}).refused(422, "validation_failed", "hosts[1]")
	s.get("/v1/accounts/acct_x").refused(404, "not_found", "")
	s.do(request{method: "PATCH", path: "/v1/accounts/" + s.operator(), body: `{"state": "suspended"}`}).refused(409, "conflict", "")
	s.do(request{method: "DELETE", path: "/v1/accounts/" + s.operator()}).refused(409, "conflict", "")
}

// Guarantee: the list of accounts has pages and filters, to which a cursor is bound.
func TestAccountList(t *testing.T) {
	s := start(t)
	for _, name := range []string{"one", "two", "another one"} {
		s.tenant(name[:3])
	}
	id, _ := s.tenant("last")
	s.patchAccount(id, `{"state": "suspended"}`).want(200)
	names := func(query string) (out []string) {
		for _, a := range s.get("/v1/accounts" + query).want(200).data() {
			out = append(out, a["name"].(string))
		}
		return out
	}
	for query, want := range map[string][]string{
		"": {"last", "ano", "two", "one", "default"}, "?q=O": {"ano", "two", "one"}, "?state=suspended": {"last"}, "?plan=platform": {"default"},
		"?state=active&plan=starter&limit=2": {"ano", "two"}, "?plan=scale": nil,
	} {
		if got := names(query); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	cursor := s.get("/v1/accounts?state=active&limit=2").text("next_cursor")
	if got := names("?state=active&limit=2&cursor=" + cursor); !slices.Equal(got, []string{"one", "default"}) {
		t.Errorf("second page: got %q", got)
	}
	s.get("/v1/accounts?limit=2&cursor="+cursor).refused(422, "validation_failed", "cursor")
	s.get("/v1/accounts?state=deleted").refused(422, "validation_failed", "state")
}

// Guarantee: when the call that suspends an account returns, its keys are 401 key_invalid; a
// resumed account's keys are valid again; a deleted account is a 404, and its name is free.
// The account's log shows the refused call with its key.
func TestSuspendResumeAndDeleteAccount(t *testing.T) {
	s := start(t)
	accountID, key := s.tenant("acme")
	own := request{method: "GET", path: "/v1/account", key: key}
	s.do(request{method: "DELETE", path: "/v1/accounts/" + accountID}).refused(409, "conflict", "")
	if r := s.patchAccount(accountID, `{"state": "suspended"}`).want(200); r.text("state") != "suspended" {
		t.Errorf("got %s, want state suspended", r.raw)
	}
	if r := s.do(own).refused(401, "unauthorized", ""); r.text("code") != "key_invalid" {
		t.Errorf("got %s, want code key_invalid", r.raw)
	}
	s.restart()
	s.do(own).refused(401, "unauthorized", "")
	s.patchAccount(accountID, `{"state": "active"}`).want(200)
	refused := s.do(request{method: "GET", path: "/v1/audit-log?outcome=key_invalid", key: key}).want(200).data()
	if len(refused) == 0 || refused[0]["key_id"] == nil {
		t.Errorf("got the refused calls %v, want at least the last, with its key", refused)
	}
	s.patchAccount(accountID, `{"state": "suspended"}`).want(200)
	if r := s.do(request{method: "DELETE", path: "/v1/accounts/" + accountID}).want(200); r.text("name") != "acme" {
		t.Errorf("got %s, want the account as it was", r.raw)
	}
	s.get("/v1/accounts/"+accountID).refused(404, "not_found", "")
	s.do(own).refused(401, "unauthorized", "")
	s.restart()
	s.do(own).refused(401, "unauthorized", "")
	s.tenant("acme")
}
