package adminapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Guarantee: the checks are made in the order of the contract (section 2). Each request
// fails its own check and the later ones.
func TestChecksAreMadeInOrder(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	reader, tenant := s.accountKey("read"), s.newAccount("tenant")
	spent := s.accountKey("read")
	for range 200 {
		s.do(request{method: "GET", path: "/v1/account", key: spent}).want(200)
	}
	big := `{"name": "` + strings.Repeat("x", 1<<20) + `"}`
	plain := map[string]string{"Content-Type": "text/html"}
	for _, row := range []struct {
		name   string
		status int
		q      request
	}{
		{"401 before 404", 401, request{method: "POST", path: "/v1/nothing", key: "-", body: big, header: plain}},
		{"401 before 405", 401, request{method: "PUT", path: "/v1/keys", key: "-", body: big, header: plain}},
		{"404 before 429", 404, request{method: "POST", path: "/v1/nothing", key: spent, body: big, header: plain}},
		{"405 before 429", 405, request{method: "PUT", path: "/v1/keys", key: spent, body: big, header: plain}},
		{"429 before 403", 429, request{method: "POST", path: "/v1/keys", key: spent, body: big, header: plain}},
		{"403 before 413", 403, request{method: "POST", path: "/v1/keys", key: reader, body: big, header: plain}},
		{"403 for another account before 413", 403, request{method: "POST", path: "/v1/accounts", key: tenant, body: big, header: plain}},
		{"403 for another account before 404 of the record", 403, request{method: "GET", path: "/v1/accounts/acct_x", key: tenant}},
		{"413 before 415", 413, request{method: "POST", path: "/v1/keys", body: big, header: plain}},
		{"415 before 400", 415, request{method: "POST", path: "/v1/keys?a=b", body: "{", header: plain}},
		{"400 before 422", 400, request{method: "POST", path: "/v1/keys?a=b", body: "{"}},
		{"422 before 404 of the record", 422, request{
			method: "PATCH", path: "/v1/gateways/gw_00000000000000000000000000", body: `{"name": 1}`, header: map[string]string{"If-Match": `"99"`},
		}},
		{"422 of package control before 404 of the record", 422, request{
			method: "PATCH", path: "/v1/gateways/gw_00000000000000000000000000", body: `{"upstream_url": "ftp://x"}`, header: map[string]string{"If-Match": `"99"`},
		}},
		{"404 of the record before 412", 404, request{
			method: "PATCH", path: "/v1/gateways/gw_00000000000000000000000000", body: `{"name": "x"}`, header: map[string]string{"If-Match": `"99"`},
		}},
		{"412", 412, request{
			method: "PATCH", path: "/v1/gateways/" + gatewayID, body: `{"name": "x"}`, header: map[string]string{"If-Match": `"99"`},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := s.in(t)
			r := s.do(row.q).want(row.status)
			if r.json["request_id"] != r.header.Get("X-Request-Id") {
				t.Errorf("got request_id in %s, want X-Request-Id %q", r.raw, r.header.Get("X-Request-Id"))
			}
			limit := r.header.Get("X-Ratelimit-Limit")
			if row.status == 401 && limit != "" {
				t.Errorf("got X-RateLimit-Limit %s with a 401, want none", limit)
			}
			if row.status != 401 && limit == "" {
				t.Errorf("got no X-RateLimit-Limit with a %d", row.status)
			}
		})
	}
}

// Guarantee: a failed If-Match on a revoked key is a 412, not a 409.
func TestPreconditionIsCheckedBeforeState(t *testing.T) {
	s := start(t)
	keyID := s.newKey(nil).text("key_id")
	s.do(request{method: "DELETE", path: "/v1/keys/" + keyID}).want(200)
	q := request{method: "PATCH", path: "/v1/keys/" + keyID, body: `{"name": "x"}`}
	s.do(q).refused(409, "conflict", "")
	q.header = map[string]string{"If-Match": `"99"`}
	s.do(q).refused(412, "precondition_failed", "")
}

// Guarantee: only a valid account-level key in the Authorization header is accepted; any
// other is a 401 with its code.
func TestOnlyValidAccountKeysAreAccepted(t *testing.T) {
	s := start(t)
	gatewayKey := s.newKey(nil).text("key")
	expiring := s.newKey(map[string]any{"level": "account", "expires_at": "2027-03-01T13:00:00Z"}).text("key")
	revoked := s.newKey(map[string]any{"level": "account"})
	s.do(request{method: "DELETE", path: "/v1/keys/" + revoked.text("key_id")}).want(200)
	for name, header := range map[string]string{
		"missing": "", "another scheme": "Basic " + s.admin, "no scheme": s.admin, "empty": "Bearer ", "malformed": "Bearer kga_x",
		"gateway level": "Bearer " + gatewayKey, "revoked": "Bearer " + revoked.text("key"),
		"wrong checksum": "Bearer " + s.admin[:len(s.admin)-1] + "!", "two in one": "Bearer " + s.admin + ", Bearer " + s.admin,
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			r := s.do(request{method: "GET", path: "/v1/account", key: "-", header: map[string]string{"Authorization": header}}).refused(401, "unauthorized", "")
			if r.text("code") != "key_invalid" || r.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("got code %v, WWW-Authenticate %q, want key_invalid and Bearer", r.json["code"], r.header.Get("WWW-Authenticate"))
			}
		})
	}
	s.do(request{method: "GET", path: "/v1/gateways", key: "-", header: map[string]string{"Authorization": "bEARER  " + s.admin}}).want(200)
	s.do(request{method: "GET", path: "/v1/gateways", key: expiring}).want(200)
	s.clock.move(61 * 60 * 1e9)
	if r := s.do(request{method: "GET", path: "/v1/gateways", key: expiring}).refused(401, "unauthorized", ""); r.text("code") != "key_expired" {
		t.Errorf("got code %v, want key_expired", r.json["code"])
	}
	// A key in the query is not accepted on this API.
	s.do(request{method: "GET", path: "/v1/account?api_key=" + s.admin, key: "-"}).refused(401, "unauthorized", "")
}

// Guarantee: two Authorization headers are refused, even if both are valid.
func TestTwoAuthorizationHeadersAreRefused(t *testing.T) {
	s := start(t)
	req, err := http.NewRequest("GET", s.http.URL+"/v1/account", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header["Authorization"] = []string{"Bearer " + s.admin, "Bearer " + s.admin}
	res, err := s.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 401 {
		t.Errorf("got status %d, want 401", res.StatusCode)
	}
}

// Guarantee: each key may make 200 calls at once, then 100 a second. Every response but a
// 401 has the rate limit headers, and a request for an unknown path is not charged.
func TestCallsAreLimitedPerKey(t *testing.T) {
	s := start(t)
	key := s.accountKey("read")
	get := func(path string) *response { return s.do(request{method: "GET", path: path, key: key}) }
	for i := range 200 {
		r := get("/v1/account").want(200)
		if got := r.header.Get("X-RateLimit-Remaining"); got != strconv.Itoa(199-i) {
			t.Fatalf("call %d: got %s remaining, want %d", i, got, 199-i)
		}
	}
	r := get("/v1/account").refused(429, "rate_limit_exceeded", "")
	now := s.clock.Now().Unix()
	for name, want := range map[string]string{
		"X-RateLimit-Limit": "200", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": strconv.FormatInt(now+1, 10), "Retry-After": "1",
		"RateLimit-Policy": `"account";q=200;w=2`, "RateLimit": `"account";r=0;t=1`,
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("got %s = %q, want %q", name, got, want)
		}
	}
	if r.json["limit_scope"] != "account" || r.json["limit"] != 200.0 || r.json["remaining"] != 0.0 || r.json["reset_at"] != float64(now+1) {
		t.Errorf("got %s, want limit 200, remaining 0, reset_at %d of scope account", r.raw, now+1)
	}
	get("/v1/nothing").refused(404, "not_found", "")
	if got := s.get("/v1/account").want(200).header.Get("X-RateLimit-Remaining"); got == "0" {
		t.Error("the calls of one key were charged to another")
	}
	s.clock.move(1e9)
	if got := get("/v1/nothing").want(404).header.Get("X-RateLimit-Remaining"); got != "100" {
		t.Errorf("after a second: got %s remaining, want 100", got)
	}
}

// Guarantee: only the paths and methods of the document exist, and every response has a
// new X-Request-Id.
func TestOnlyDocumentedPathsExist(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v2/keys", "/v1/keys/", "/v1//keys", "/v1/gateways/" + gatewayID + "/", "/v1/gateways//routes",
		"/v1/audit-log/", "/v1/audit-log/tail", "/v1/reports", "/v1/sessions", "/v1/gateways/" + gatewayID + "/limit", "/V1/keys", "/v1/keys/x/y",
	} {
		s.get(path).refused(404, "not_found", "")
	}
	r := s.do(request{method: "DELETE", path: "/v1/keys"}).refused(405, "method_not_allowed", "")
	if r.header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("got Allow %q, want GET, HEAD, POST", r.header.Get("Allow"))
	}
	s.do(request{method: "OPTIONS", path: "/v1/keys"}).refused(405, "method_not_allowed", "")
	s.get("/v1/keys/verify").refused(405, "method_not_allowed", "")
	s.get("/v1/%6Beys").want(200) // an unreserved character, encoded
	s.get("/v1/keys%2Fverify").refused(404, "not_found", "")
	s.get("/v1/gateways/..").refused(404, "not_found", "")

	head := s.do(request{method: "HEAD", path: "/v1/gateways/" + gatewayID}).want(200)
	if head.raw != "" || head.header.Get("ETag") == "" || head.header.Get("Content-Length") == "" {
		t.Errorf("HEAD: got %v %q, want the headers of GET and no body", head.header, head.raw)
	}
	s.do(request{method: "HEAD", path: "/v1/nothing"}).want(404)

	// An inbound X-Request-Id is ignored, and each response has its own.
	a := s.do(request{method: "GET", path: "/v1/account", header: map[string]string{"X-Request-Id": "req_mine"}})
	b := s.get("/v1/account")
	if a.header.Get("X-Request-Id") == "req_mine" || a.header.Get("X-Request-Id") == b.header.Get("X-Request-Id") {
		t.Errorf("got X-Request-Id %q and %q, want two new ones", a.header.Get("X-Request-Id"), b.header.Get("X-Request-Id"))
	}
	// The response is JSON, whatever the Accept header.
	c := s.do(request{method: "GET", path: "/v1/account", header: map[string]string{"Accept": "application/cbor"}}).want(200)
	if c.header.Get("Content-Type") != "application/json" || c.header.Get("Link") != "" || strings.Contains(c.raw, "$schema") {
		t.Errorf("got %v\n%s\nwant JSON without Link and $schema", c.header, c.raw)
	}
}
