package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// namedUpstream returns a service whose responses have its name.
func namedUpstream(t *testing.T, name string) string {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
	t.Cleanup(up.Close)
	return up.URL
}

// calling makes a successful call of the management API and returns its record.
func calling(t *testing.T, s *keygatetest.Server, method, path, body string) map[string]any {
	t.Helper()
	r := s.Call(method, path, s.AdminKey, body)
	var record map[string]any
	if r.Status >= 300 || json.Unmarshal([]byte(r.Body), &record) != nil {
		t.Fatalf("%s %s: got %d %s", method, path, r.Status, r.Body)
	}
	return record
}

// Guarantee: targets.md, sections 7 and 9. Over both versions of HTTP, requests go to the side that a condition or the weight
// decides, of the route or of the gateway; and a request's record says the side and why, as does the access log.
func TestSplitOverBothVersions(t *testing.T) {
	log := filepath.Join(t.TempDir(), "access.log")
	s := keygatetest.Start(t, "--access-log", log)
	old, next := namedUpstream(t, "old"), namedUpstream(t, "next")
	dead := porttest.Reserve(t)
	g := "/v1/gateways/" + calling(t, s, "POST", "/v1/gateways", `{"name":"g","upstreams":[{"name":"default","targets":[{"url":"`+old+`"}]},
		{"name":"next","targets":[{"url":"`+next+`"}]},{"name":"gone","targets":[{"url":"http://`+dead+`"}]}],
		"split":[{"upstream":"next","when":{"header":{"X-Beta":"1"}}}]}`)["gateway_id"].(string)
	calling(t, s, "POST", g+"/routes", `{"path":"/a","methods":["GET"],"auth":"none"}`)
	calling(t, s, "POST", g+"/routes", `{"path":"/none","methods":["GET"],"auth":"none","split":[]}`)
	own := calling(t, s, "POST", g+"/routes", `{"path":"/own","methods":["GET"],"auth":"none","split":[{"upstream":"next","weight":100}]}`)
	calling(t, s, "POST", g+"/routes", `{"path":"/gone","methods":["GET"],"auth":"none","split":[{"upstream":"gone","weight":100}]}`)
	calling(t, s, "POST", g+"/routes", `{"path":"/saved","methods":["GET"],"auth":"none","split":[{"upstream":"gone","weight":100,"fallback":true}]}`)
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(version == "HTTP/1.1")
		transport.Protocols.SetUnencryptedHTTP2(version == "HTTP/2")
		t.Cleanup(transport.CloseIdleConnections)
		get := func(path, beta string) (status int, body, id string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.GatewayURL()+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if beta != "" {
				req.Header.Set("X-Beta", beta)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(text), resp.Header.Get("X-Request-Id")
		}
		for _, c := range []struct{ path, beta, want string }{
			{"/a", "", "old"}, {"/a", "2", "old"}, {"/a", "1", "next"}, {"/none", "1", "old"}, {"/own", "", "next"},
		} {
			if status, body, _ := get(c.path, c.beta); status != http.StatusOK || body != c.want {
				t.Errorf("%s %s with X-Beta %q: got %d %s, want a response of %s", version, c.path, c.beta, status, body, c.want)
			}
		}
		status, _, id := get("/gone", "1")
		if status != http.StatusBadGateway {
			t.Errorf("%s: got %d of a side that is gone, want 502", version, status)
		}
		r, err := s.Admin.RequestByID(t.Context(), id)
		if err != nil || r.Side == nil || *r.Side != "gone" || r.SideReason == nil || *r.SideReason != "100 % of callers, by the address" {
			t.Errorf("%s: got %+v, %v; want the side gone with its reason", version, r, err)
		}
		saved := 0
		awaittest.True(t, "the target of the side to be ejected, and the other side to serve", func() bool {
			status, body, _ := get("/saved", "")
			if status == http.StatusOK && body == "old" {
				saved++
			}
			return saved > 0
		})
	}
	awaittest.True(t, "the records in the access log", func() bool {
		content, err := os.ReadFile(log)
		return err == nil && strings.Count(string(content), `"side":"next"}`) == 4 && strings.Contains(string(content), `"path":"/none","status":200`) &&
			strings.Contains(string(content), `"upstream":"default","target":"`+strings.TrimPrefix(old, "http://")+`","attempts":null,"side":null}`)
	})
	sides := map[string]bool{}
	awaittest.True(t, "the sides in the report", func() bool {
		rows, err := s.Admin.Traffic(t.Context(), client.TrafficQuery{Interval: "1h", GroupBy: "side"})
		for i := range rows {
			if err == nil && rows[i].Group != nil && rows[i].Requests > 0 {
				sides[*rows[i].Group] = true
			}
		}
		return sides["next"] && sides["default"] && sides["gone"]
	})
	if r := calling(t, s, "GET", g+"/routes/"+own["route_id"].(string), ""); fmt.Sprint(r["split"]) != "[map[fallback:false sticky:true upstream:next weight:100 when:<nil>]]" {
		t.Errorf("got the split %v of the route", r["split"])
	}
}

// Guarantee: a split is refused with the field and the remedy if an entry is wrong or names an upstream or a key that the account
// does not have; an upstream that a split names cannot be deleted; a file, its diff, its effect, an export and a rollback have
// splits; and so has the audit log.
func TestSplitInTheAPI(t *testing.T) {
	s := keygatetest.Start(t)
	up := namedUpstream(t, "any")
	id := calling(t, s, "POST", "/v1/gateways", `{"name":"g","upstreams":[{"name":"default","targets":[{"url":"`+up+`"}]},{"name":"next","targets":[{"url":"`+up+`"}]}]}`)["gateway_id"].(string)
	g := "/v1/gateways/" + id
	route := g + "/routes/" + calling(t, s, "POST", g+"/routes", `{"path":"/a","methods":["GET"]}`)["route_id"].(string)
	for _, c := range []struct{ split, field, message string }{
		{`[{"upstream":"next"}]`, "split[0].weight", "give a weight in percent, or a condition"},
		{`[{"upstream":"next","weight":5.001}]`, "split[0].weight", "at most 2 decimals"},
		{`[{"upstream":"next","weight":1},{"upstream":"next","weight":2}]`, "split[1].weight", "only one entry may have one"},
		{`[{"upstream":"next","weight":1,"when":{"owner":["a"]}}]`, "split[0].when", "make two entries of it"},
		{`[{"upstream":"next","when":{}}]`, "split[0].when", "exactly one of header, key and owner"},
		{`[{"upstream":"next","when":{"owner":["a"],"header":{"X-A":"1"}}}]`, "split[0].when", "exactly one of header, key and owner"},
		{`[{"upstream":"next","sticky":false,"when":{"owner":["a"]}}]`, "split[0].sticky", "needs a weight"},
		{`[{"upstream":"next","when":{"header":{"Authorization":"Bearer 1"}}}]`, "split[0].when.header.Authorization", "Use a header of your own"},
		{`[{"upstream":"next","when":{"header":{"X A":"1"}}}]`, "split[0].when.header", "not a valid header name"},
		{`[{"upstream":"next","when":{"key":["key_01jz8y5c3te9b8r2m6q4v7x0dd"]}}]`, "split[0].when.key[0]", "the account has no key"},
		{`[{"upstream":"next","when":{"key":["gw_1"]}}]`, "split[0].when.key[0]", "is not the identifier of a key"},
		{`[{"upstream":"beta","weight":1}]`, "split[0].upstream", "the gateway has no upstream with the name beta"},
	} {
		for _, path := range []string{g, route} {
			r := s.Call("PATCH", path, s.AdminKey, `{"split":`+c.split+`}`)
			if r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, `"`+c.field+`"`) || !strings.Contains(r.Body, c.message) {
				t.Errorf("%s %s: got %d %s, want 422 with %s: %s", path, c.split, r.Status, r.Body, c.field, c.message)
			}
		}
	}
	if r := s.Call("PATCH", g, s.AdminKey, `{"key_headers":["X-Api-Key"]}`); r.Status != http.StatusOK {
		t.Fatalf("got %d %s", r.Status, r.Body)
	}
	if r := s.Call("PATCH", route, s.AdminKey, `{"split":[{"upstream":"next","when":{"header":{"x-api-key":"1"}}}]}`); r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "the gateway takes keys from it") {
		t.Errorf("got %d %s for a header that holds keys, want 422", r.Status, r.Body)
	}

	// An upstream that a split names stays.
	for _, path := range []string{g, route} {
		calling(t, s, "PATCH", path, `{"split":[{"upstream":"next","weight":2.5}]}`)
		if r := s.Call("DELETE", g+"/upstreams/next", s.AdminKey, ""); r.Status != http.StatusConflict || !strings.Contains(r.Body, "split") {
			t.Errorf("got %d %s for an upstream that a split of %s names, want 409", r.Status, r.Body, path)
		}
		calling(t, s, "PATCH", path, `{"split":null}`)
	}

	// Keys of other accounts are as keys that do not exist.
	account := calling(t, s, "POST", "/v1/accounts", `{"name":"other","plan":"starter"}`)
	foreign, err := s.Client(account["key"].(string)).CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	if r := s.Call("PATCH", g, s.AdminKey, `{"split":[{"upstream":"next","when":{"key":["`+foreign.KeyID+`"]}}]}`); r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "the account has no key") {
		t.Errorf("got %d %s for a key of another account, want 422", r.Status, r.Body)
	}
	if r := s.Call("PATCH", route, account["key"].(string), `{"split":[]}`); r.Status != http.StatusNotFound {
		t.Errorf("got %d %s for a route of another account, want 404", r.Status, r.Body)
	}
	reader, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "r", Scope: "read", Level: new(client.CreateKeyRequestLevel("account"))})
	if err != nil {
		t.Fatal(err)
	}
	if r := s.Call("PATCH", route, reader.Secret, `{"split":[]}`); r.Status != http.StatusForbidden {
		t.Errorf("got %d %s with a key that may only read, want 403", r.Status, r.Body)
	}

	// Files.
	key, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "read"})
	if err != nil {
		t.Fatal(err)
	}
	rotated, err := s.Admin.RotateKey(t.Context(), key.KeyID, client.RotateKeyRequest{OverlapDays: 1})
	if err != nil {
		t.Fatal(err)
	}
	file := `gateway:
  split:
    - {upstream: next, when: {header: {X-Beta: "1"}}}
    - {upstream: next, weight: 0.25, sticky: false, fallback: true}
routes:
  - path: /a
    methods: [GET]
    split:
      - {upstream: next, when: {key: [` + rotated.KeyID + `]}}
  - path: /b
    methods: [GET]
    split: []
`
	for i, want := range []string{"1 routes changed, 1 added", "idle"} {
		push, err := s.Admin.PushConfig(t.Context(), id, []byte(file), false)
		if err != nil {
			t.Fatal(err)
		}
		settings := 0
		if push.Gateway != nil {
			settings = len(*push.Gateway)
		}
		if got := [3]int{settings, len(push.Changed), len(push.Added)}; i == 0 && got != [3]int{1, 1, 1} || i == 1 && got != [3]int{} {
			t.Errorf("push %d: got %d settings, %d routes changed and %d added, want %s", i, got[0], got[1], got[2], want)
		}
	}
	exported := s.Call("GET", g+"/config", s.AdminKey, "")
	for _, part := range strings.SplitAfter(file, "\n") {
		if !strings.Contains(exported.Body, strings.TrimSpace(part)) {
			t.Errorf("got exported\n%s\nwant %s", exported.Body, part)
		}
	}
	for _, c := range []struct{ text, line, message string }{
		{strings.Replace(file, "[{upstream: next, weight", "", 1) + "", "", ""},
		{strings.Replace(file, "- {upstream: next, weight: 0.25", "- {upstream: beta, weight: 0.25", 1), "line 4, column", "no upstream with the name beta"},
		{strings.Replace(file, "      - {upstream: next, when: {key", "      - {upstream: beta, when: {key", 1), "line 9, column", "no upstream with the name beta"},
		{strings.Replace(file, rotated.KeyID, foreign.KeyID, 1), "line 9, column", "the account has no key"},
		{strings.Replace(file, "weight: 0.25", "weight: 101", 1), "line 4, column", "between 0 and 100"},
		{strings.Replace(file, "gateway:\n", "gateway:\n  upstreams: []\n", 1), "line 4, column", "no upstream with the name next"},
	} {
		if c.line == "" {
			continue
		}
		_, err := s.Admin.PushConfig(t.Context(), id, []byte(c.text), true)
		if err == nil || !strings.Contains(err.Error(), c.line) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("got %v, want %s and %s", err, c.line, c.message)
		}
	}
	if _, err := s.Admin.PushConfig(t.Context(), id, []byte("gateway: {upstreams: []}\nroutes: []\n"), true); err == nil || !strings.Contains(err.Error(), "which the split of the gateway names") {
		t.Errorf("got %v for a file that removes an upstream of the split, want a 422", err)
	}

	// A spec, and a rollback from it to the file.
	spec := "openapi: 3.1.0\ninfo: {title: a, version: '1'}\npaths:\n  /a:\n    get:\n      x-keygate-split: [{upstream: beta, weight: 5}]\n      responses: {}\n"
	if _, err := s.Admin.PushSpec(t.Context(), id, []byte(spec), false); err == nil || !strings.Contains(err.Error(), "line 6, column") || !strings.Contains(err.Error(), "no upstream with the name beta") {
		t.Errorf("got %v for a spec that names an unknown upstream, want a 422 with its line", err)
	}
	push, err := s.Admin.PushSpec(t.Context(), id, []byte(strings.Replace(spec, "beta", "next", 1)), false)
	if err != nil || len(push.Changed) != 1 || len(push.Removed) != 1 {
		t.Fatalf("got %+v, %v; want a route changed and one removed", push, err)
	}
	calling(t, s, "PATCH", g, `{"split":null}`)
	if r := s.Call("POST", g+"/revisions/1/rollback", s.AdminKey, ""); r.Status >= 300 {
		t.Fatalf("got %d %s", r.Status, r.Body)
	}
	if again := s.Call("GET", g+"/config", s.AdminKey, ""); again.Body != exported.Body {
		t.Errorf("got after a rollback\n%s\nwant\n%s", again.Body, exported.Body)
	}
	log := s.Call("GET", "/v1/audit-log?limit=100", s.AdminKey, "")
	if !strings.Contains(log.Body, `"split"`) {
		t.Errorf("got the audit log %s, want the split in it", log.Body)
	}
}
