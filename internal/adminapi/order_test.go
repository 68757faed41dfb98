package adminapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Each row has one defect more than the row below it: the answer must tell of
// the check that comes first (contract, section 2).
func TestOrderOfChecks(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	reader := s.accountKey("read")
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
		{"413 before 415", 413, request{method: "POST", path: "/v1/keys", body: big, header: plain}},
		{"415 before 400", 415, request{method: "POST", path: "/v1/keys?a=b", body: "{", header: plain}},
		{"400 before 422", 400, request{method: "POST", path: "/v1/keys?a=b", body: "{"}},
		{"422 before 404 of the id", 422, request{
			method: "PATCH", path: "/v1/gateways/gw_00000000000000000000000000", body: `{"name": 1}`, header: map[string]string{"If-Match": `"99"`},
		}},
		{"422 that control tells, before 404 of the id", 422, request{
			method: "PATCH", path: "/v1/gateways/gw_00000000000000000000000000", body: `{"upstream_url": "ftp://x"}`, header: map[string]string{"If-Match": `"99"`},
		}},
		{"404 of the id before 412", 404, request{
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
				t.Errorf("request_id differs from X-Request-Id: %s", r.raw)
			}
			if limited := r.header.Get("X-Ratelimit-Limit") != ""; limited != (row.status != 401) {
				t.Errorf("limit headers: %v", r.header)
			}
		})
	}
}

// 412 comes before 409: a revoked key that was changed since is a 412.
func TestPreconditionBeforeState(t *testing.T) {
	s := start(t)
	keyID := s.newKey(nil).text("key_id")
	s.do(request{method: "DELETE", path: "/v1/keys/" + keyID}).want(200)
	q := request{method: "PATCH", path: "/v1/keys/" + keyID, body: `{"name": "x"}`}
	s.do(q).refused(409, "conflict", "")
	q.header = map[string]string{"If-Match": `"99"`}
	s.do(q).refused(412, "precondition_failed", "")
}

func TestAuthentication(t *testing.T) {
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
				t.Errorf("code %v, WWW-Authenticate %q", r.json["code"], r.header.Get("WWW-Authenticate"))
			}
		})
	}
	s.do(request{method: "GET", path: "/v1/gateways", key: "-", header: map[string]string{"Authorization": "bEARER  " + s.admin}}).want(200)
	s.do(request{method: "GET", path: "/v1/gateways", key: expiring}).want(200)
	s.clock.move(61 * 60 * 1e9)
	if r := s.do(request{method: "GET", path: "/v1/gateways", key: expiring}).refused(401, "unauthorized", ""); r.text("code") != "key_expired" {
		t.Errorf("code %v", r.json["code"])
	}
	// The key has no place in the query here.
	s.do(request{method: "GET", path: "/v1/account?api_key=" + s.admin, key: "-"}).refused(401, "unauthorized", "")
}

// Two Authorization fields are no key, whichever of them is good.
func TestTwoAuthorizationFields(t *testing.T) {
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
		t.Errorf("status %d", res.StatusCode)
	}
}

// Each key has 200 calls at once, then 100 a second; every answer after 401
// tells where it stands, and what is no call is not charged.
func TestAccountLimit(t *testing.T) {
	s := start(t)
	key := s.accountKey("read")
	get := func(path string) *reply { return s.do(request{method: "GET", path: path, key: key}) }
	for i := range 200 {
		r := get("/v1/account").want(200)
		if got := r.header.Get("X-RateLimit-Remaining"); got != strconv.Itoa(199-i) {
			t.Fatalf("call %d: remaining %s", i, got)
		}
	}
	r := get("/v1/account").refused(429, "rate_limit_exceeded", "")
	now := s.clock.Now().Unix()
	for name, want := range map[string]string{
		"X-RateLimit-Limit": "200", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": strconv.FormatInt(now+1, 10), "Retry-After": "1",
		"RateLimit-Policy": `"account";q=200;w=2`, "RateLimit": `"account";r=0;t=1`,
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if r.json["limit_scope"] != "account" || r.json["limit"] != 200.0 || r.json["remaining"] != 0.0 || r.json["reset_at"] != float64(now+1) {
		t.Errorf("body %s", r.raw)
	}
	get("/v1/nothing").refused(404, "not_found", "")
	if got := s.get("/v1/account").want(200).header.Get("X-RateLimit-Remaining"); got == "0" {
		t.Error("one key's calls are charged to another")
	}
	s.clock.move(1e9)
	if got := get("/v1/nothing").want(404).header.Get("X-RateLimit-Remaining"); got != "100" {
		t.Errorf("after a second %s remain, want 100", got)
	}
}

func TestPathsAndMethods(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v2/keys", "/v1/keys/", "/v1//keys", "/v1/gateways/" + gatewayID + "/", "/v1/gateways//routes",
		"/v1/audit-log/", "/v1/audit-log/tail", "/v1/reports", "/v1/session", "/v1/gateways/" + gatewayID + "/limit", "/V1/keys", "/v1/keys/x/y",
	} {
		s.get(path).refused(404, "not_found", "")
	}
	r := s.do(request{method: "DELETE", path: "/v1/keys"}).refused(405, "method_not_allowed", "")
	if r.header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("Allow: %s", r.header.Get("Allow"))
	}
	s.do(request{method: "OPTIONS", path: "/v1/keys"}).refused(405, "method_not_allowed", "")
	s.get("/v1/keys/verify").refused(405, "method_not_allowed", "")
	s.get("/v1/%6Beys").want(200) // an unreserved character, encoded
	s.get("/v1/keys%2Fverify").refused(404, "not_found", "")
	s.get("/v1/gateways/..").refused(404, "not_found", "")

	head := s.do(request{method: "HEAD", path: "/v1/gateways/" + gatewayID}).want(200)
	if head.raw != "" || head.header.Get("ETag") == "" || head.header.Get("Content-Length") == "" {
		t.Errorf("HEAD: %v %q", head.header, head.raw)
	}
	s.do(request{method: "HEAD", path: "/v1/nothing"}).want(404)

	// An inbound X-Request-Id is not believed, and each answer has its own.
	a := s.do(request{method: "GET", path: "/v1/account", header: map[string]string{"X-Request-Id": "req_mine"}})
	b := s.get("/v1/account")
	if a.header.Get("X-Request-Id") == "req_mine" || a.header.Get("X-Request-Id") == b.header.Get("X-Request-Id") {
		t.Error("X-Request-Id is not new")
	}
	// Nothing but JSON is spoken, whatever is asked for.
	c := s.do(request{method: "GET", path: "/v1/account", header: map[string]string{"Accept": "application/cbor"}}).want(200)
	if c.header.Get("Content-Type") != "application/json" || c.header.Get("Link") != "" || strings.Contains(c.raw, "$schema") {
		t.Errorf("%v\n%s", c.header, c.raw)
	}
}
