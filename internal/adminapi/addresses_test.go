package adminapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Guarantee: edge.md, section 2: allow_ips and deny_ips of a gateway and of a key are created, read, changed and removed,
// in normal form; null and [] both remove them; a rotation keeps those of a key; the audit log says what changed.
func TestListsOfAddresses(t *testing.T) {
	s := start(t)
	gateway := s.post("/v1/gateways", map[string]any{"name": "orders", "upstream_url": "http://127.0.0.1:9", "allow_ips": []string{"::ffff:10.0.0.0/104"}, "deny_ips": []string{}}).want(201)
	key := s.newKey(map[string]any{"name": "mobile", "scope": "read", "allow_ips": []string{"203.0.113.0/24", "203.0.113.0/24"}, "deny_ips": []string{"203.0.113.7/32"}})
	rotated := s.post("/v1/keys/"+key.text("key_id")+"/rotate", `{"overlap_days": 1}`).want(201)
	imported := s.post("/v1/keys/import", map[string]any{"keys": []any{map[string]any{"name": "one", "scope": "read", "key": foreignKey, "deny_ips": []string{"::/0"}}}}).want(201)
	for what, c := range map[string]struct {
		record map[string]any
		want   string // allow_ips and deny_ips
	}{
		"gateway":      {gateway.json, "[10.0.0.0/8] <nil>"},
		"key":          {key.json, "[203.0.113.0/24] [203.0.113.7/32]"},
		"rotated key":  {rotated.json, "[203.0.113.0/24] [203.0.113.7/32]"},
		"imported key": {imported.data()[0], "<nil> [::/0]"},
	} {
		if got := fmt.Sprint(c.record["allow_ips"], " ", c.record["deny_ips"]); got != c.want {
			t.Errorf("%s: got %s, want %s", what, got, c.want)
		}
	}
	routes := "/v1/gateways/" + gateway.text("gateway_id") + "/routes"
	route := s.post(routes, map[string]any{"path": "/a", "methods": []string{"GET"}, "allow_ips": []string{"::ffff:10.0.0.0/104"}, "deny_ips": []string{}}).want(201)
	if got := fmt.Sprint(route.json["allow_ips"], route.json["deny_ips"]); got != "[10.0.0.0/8] <nil>" {
		t.Errorf("route: got %s, want allow_ips in normal form", got)
	}
	for _, path := range []string{"/v1/gateways/" + gateway.text("gateway_id"), "/v1/keys/" + rotated.text("key_id"), routes + "/" + route.text("route_id")} {
		set := s.do(request{method: "PATCH", path: path, body: `{"allow_ips": ["198.51.100.0/24"], "deny_ips": ["198.51.100.7/32"]}`}).want(200)
		kept := s.do(request{method: "PATCH", path: path, body: `{}`}).want(200)
		if got := fmt.Sprint(kept.json["allow_ips"], kept.json["deny_ips"]); got != "[198.51.100.0/24] [198.51.100.7/32]" || fmt.Sprint(set.json["allow_ips"], set.json["deny_ips"]) != got {
			t.Errorf("%s: got %s, want both lists", path, got)
		}
		cleared := s.do(request{method: "PATCH", path: path, body: `{"allow_ips": null, "deny_ips": []}`}).want(200)
		if cleared.json["allow_ips"] != nil || cleared.json["deny_ips"] != nil {
			t.Errorf("%s: got %s, want no lists", path, cleared.raw)
		}
	}
	log := s.get("/v1/audit-log?kind=management").want(200).raw
	for _, want := range []string{`"allow_ips":[["198.51.100.0/24"],null]`, `"allow_ips":[null,["203.0.113.0/24"]]`, `"deny_ips":[null,["::/0"]]`} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit log has no %s", want)
		}
	}
}

// Guarantee: lists that are not networks, or too long, are 422 with the item and the remedy, and change nothing; so are
// lists of an account-level key. Keys and gateways of other accounts are 404, and a key with too small a scope gets 403.
func TestWrongListsOfAddresses(t *testing.T) {
	s := start(t)
	gateway := "/v1/gateways/" + s.newGateway("")
	key := "/v1/keys/" + s.newKey(map[string]any{"name": "mobile", "scope": "read"}).text("key_id")
	many := make([]string, 257)
	for i := range many {
		many[i] = fmt.Sprintf("10.0.%d.%d/32", i/256, i%256)
	}
	long, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	route := gateway + "/routes/" + s.post(gateway+"/routes", map[string]any{"path": "/a", "methods": []string{"GET"}}).want(201).text("route_id")
	for _, path := range []string{gateway, key, route} {
		for _, c := range []struct{ body, field, message string }{
			{`{"allow_ips": ["10.0.0.0/8", "10.0.0.1"]}`, "allow_ips[1]", "write 10.0.0.1/32"},
			{`{"deny_ips": ["10.0.0.1/8"]}`, "deny_ips[0]", "write 10.0.0.0/8"},
			{`{"deny_ips": ["10.0.0.0/8", "10.0.0.0/8", "localhost"]}`, "deny_ips[2]", "is not a network"},
			{`{"deny_ips": ` + string(long) + `}`, "deny_ips", "256"},
			{`{"allow_ips": "10.0.0.0/8"}`, "allow_ips", ""},
			{`{"allow_ips": [7]}`, "allow_ips[0]", ""},
		} {
			got := s.do(request{method: "PATCH", path: path, body: c.body}).refused(422, "validation_failed", c.field)
			if !strings.Contains(got.text("message"), c.message) {
				t.Errorf("%s: got %s, want %q in the message", c.body, got.text("message"), c.message)
			}
		}
		if got := s.get(path).want(200); got.json["allow_ips"] != nil || got.json["deny_ips"] != nil {
			t.Errorf("%s: got %s, want no lists", path, got.raw)
		}
		const body = `{"allow_ips": ["10.0.0.0/8"]}`
		s.do(request{method: "PATCH", path: path, key: s.accountKey("read"), body: body}).refused(403, "forbidden", "")
		s.do(request{method: "PATCH", path: path, key: s.newAccount("other" + path[len(path)-6:]), body: body}).refused(404, "not_found", "")
	}
	account := s.newKey(map[string]any{"name": "ops", "scope": "read", "level": "account"}).text("key_id")
	s.post("/v1/keys", map[string]any{"name": "ops", "scope": "read", "level": "account", "allow_ips": []string{"10.0.0.0/8"}}).refused(422, "validation_failed", "allow_ips")
	s.do(request{method: "PATCH", path: "/v1/keys/" + account, body: `{"deny_ips": ["10.0.0.0/8"]}`}).refused(422, "validation_failed", "deny_ips")
	s.do(request{method: "PATCH", path: "/v1/keys/" + account, body: `{"deny_ips": []}`}).want(200)
}

// Guarantee: maintenance is turned on with a message and networks, replaced as a whole, and turned off by null.
func TestMaintenanceOfAGateway(t *testing.T) {
	s := start(t)
	path := "/v1/gateways/" + s.newGateway("")
	patch := func(body string) *response {
		return s.do(request{method: "PATCH", path: path, body: `{"maintenance": ` + body + `}`})
	}
	for _, c := range []struct{ body, want string }{
		{`{"message": "back soon", "allow": ["::ffff:10.0.0.0/104"]}`, "map[allow:[10.0.0.0/8] message:back soon]"},
		{`{}`, "map[allow:[] message:<nil>]"},
		{`{"message": null, "allow": []}`, "map[allow:[] message:<nil>]"},
		{`null`, "<nil>"},
	} {
		if got := fmt.Sprint(patch(c.body).want(200).json["maintenance"]); got != c.want {
			t.Errorf("%s: got %s, want %s", c.body, got, c.want)
		}
		if got := fmt.Sprint(s.get(path).want(200).json["maintenance"]); got != c.want {
			t.Errorf("after %s: got %s, want %s", c.body, got, c.want)
		}
	}
	for body, field := range map[string]string{
		`{"allow": ["10.0.0.1/8"]}`: "maintenance.allow[0]", `{"until": 5}`: "maintenance.until", `true`: "maintenance", `{"message": "a\u0007b"}`: "maintenance.message",
		`{"message": "` + strings.Repeat("é", 501) + `"}`: "maintenance.message", `{"message": "${env:HOME}"}`: "maintenance.message",
	} {
		patch(body).refused(422, "validation_failed", field)
	}
	if log := s.get("/v1/audit-log?kind=management").want(200).raw; !strings.Contains(log, `"maintenance":[null,{"allow":["10.0.0.0/8"],"message":"back soon"}]`) {
		t.Errorf("got %s, want the maintenance in the audit log", log)
	}
}
