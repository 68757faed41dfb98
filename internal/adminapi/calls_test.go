package adminapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/gateway"
)

// wantFields fails the test unless the record has exactly the fields in want.
func wantFields(t *testing.T, record map[string]any, want string) {
	t.Helper()
	names := strings.Fields(want)
	slices.Sort(names)
	if got := slices.Sorted(maps.Keys(record)); !slices.Equal(got, names) {
		t.Errorf("got fields  %v\nwant fields %v", got, names)
	}
}

const (
	keyFields = "key_id name level scope key_prefix state owner owner_id plan plan_id gateway_id rate_limit concurrency allow_ips deny_ips metadata " +
		"created_at expires_at revoked_at last_used_at rotated_from rotated_to imported"
	routeFields = "route_id gateway_id path methods rate_limit concurrency cost upstream split strip_prefix redirect respond request_headers response_headers allow_ips deny_ips validate auth source created_at"
)

// gatewayFields returns the fields that every record of a gateway has.
func gatewayFields() string {
	names := "gateway_id revision created_at"
	for _, s := range gateway.Settings() {
		if s.Doc.Record != "" && !s.Record.OmitEmpty {
			names += " " + s.Name
		}
	}
	return names
}

// Guarantee: a gateway is created, read, listed, changed and deleted with the fields of
// the contract (section 3.3).
func TestGatewayIsCreatedChangedAndDeleted(t *testing.T) {
	s := start(t)
	created := s.post("/v1/gateways", map[string]any{
		"name": "orders", "upstream_url": "https://orders.internal/base", "hostname": "API.example.com",
		"global_rate_limit": map[string]any{"sustained": "6000/min", "burst": "200/s"}, "timeout": "5s",
		"upstream_headers": map[string]string{"X-Token": "hush-hush"}, "max_body_bytes": 1000,
		"cors": map[string]any{"origins": []string{"https://app.example.com"}}, "spec": petSpec,
	}).want(201)
	id := created.text("gateway_id")
	if created.header.Get("Location") != "/v1/gateways/"+id || created.header.Get("ETag") == "" {
		t.Errorf("got headers %v, want Location and ETag of the gateway", created.header)
	}
	wantFields(t, created.json, gatewayFields())
	for name, want := range map[string]string{
		"name": `"orders"`, "upstream_url": `"https://orders.internal/base"`, "hostname": `"api.example.com"`, "timeout": `"5s"`,
		"global_rate_limit": `{"burst":"200/s","sustained":"6000/min"}`, "upstream_headers": `{"X-Token":"***"}`,
		"max_body_bytes": "1000", "revision": "1", "created_at": `"2027-03-01T12:00:00Z"`,
		"cors": `{"headers":[],"max_age":0,"methods":[],"origins":["https://app.example.com"]}`,
	} {
		if got, _ := json.Marshal(created.json[name]); string(got) != want {
			t.Errorf("got %s = %s, want %s", name, got, want)
		}
	}
	t.Run("GET returns the record as POST did", func(t *testing.T) {
		if got := s.in(t).get("/v1/gateways/" + id).want(200); got.raw != created.raw {
			t.Errorf("got %s, want %s", got.raw, created.raw)
		}
		if list := s.in(t).get("/v1/gateways").want(200).data(); len(list) != 1 || list[0]["gateway_id"] != id {
			t.Errorf("got list %v, want only %s", list, id)
		}
	})
	t.Run("PATCH clears null fields and keeps absent ones", func(t *testing.T) {
		patched := s.in(t).do(request{method: "PATCH", path: "/v1/gateways/" + id, body: `{"hostname": null, "global_rate_limit": null, "timeout": null,
			"upstream_headers": null, "upstream_ca": null, "cors": null, "max_body_bytes": null}`}).want(200)
		wantFields(t, patched.json, gatewayFields())
		for name, want := range map[string]any{
			"name": "orders", "hostname": strings.ReplaceAll(id, "_", "-") + ".localhost", "global_rate_limit": nil, "timeout": "60s",
			"cors": nil, "max_body_bytes": nil, "revision": 1.0,
		} {
			if patched.json[name] != want {
				t.Errorf("got %s = %v, want %v", name, patched.json[name], want)
			}
		}
	})
	t.Run("only one gateway of all accounts has a hostname", func(t *testing.T) {
		s := s.in(t)
		s.do(request{method: "PATCH", path: "/v1/gateways/" + id, body: `{"hostname": "taken.example.net"}`}).want(200)
		s.do(request{method: "POST", path: "/v1/gateways", key: s.newAccount("other"), body: map[string]any{
			"name": "a", "upstream_url": "http://x", "hostname": "taken.example.net",
		}}).refused(409, "conflict", "hostname")
	})
	t.Run("DELETE revokes the keys restricted to the gateway", func(t *testing.T) {
		s := s.in(t)
		restricted := s.newKey(map[string]any{"gateway_id": id}).text("key_id")
		deleted := s.do(request{method: "DELETE", path: "/v1/gateways/" + id}).want(200)
		wantFields(t, deleted.json, gatewayFields())
		s.get("/v1/gateways/"+id).refused(404, "not_found", "")
		s.do(request{method: "DELETE", path: "/v1/gateways/" + id}).refused(404, "not_found", "")
		if state := s.get("/v1/keys/" + restricted).want(200).text("state"); state != "revoked" {
			t.Errorf("got state %s of a key restricted to the gateway, want revoked", state)
		}
	})
}

// Guarantee: a route is created, changed and deleted with the fields of the contract
// (section 3.3).
func TestRouteIsCreatedChangedAndDeleted(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	routes := "/v1/gateways/" + gatewayID + "/routes"
	created := s.post(routes, map[string]any{
		"path": "/orders/{id}", "methods": []string{"GET", "DELETE"}, "rate_limit": map[string]any{"sustained": "600/min", "burst": "50/s", "per": "key"},
	}).want(201)
	id := created.text("route_id")
	wantFields(t, created.json, routeFields)
	if created.header.Get("Location") != routes+"/"+id || created.json["auth"] != "key" || created.json["source"] != "api" {
		t.Errorf("got %v\n%s\nwant a Location, auth key and source api", created.header, created.raw)
	}
	limit := func(r *response) string { out, _ := json.Marshal(r.json["rate_limit"]); return string(out) }
	if got := limit(created); got != `{"burst":"50/s","daily":null,"per":"key","sustained":"600/min"}` {
		t.Errorf("got rate_limit %s", got)
	}
	for _, step := range []struct{ body, want string }{
		{`{"rate_limit": {"daily": "10/day", "per": null}}`, `{"burst":"50/s","daily":"10/day","per":null,"sustained":"600/min"}`},
		{`{"rate_limit": {"burst": null}}`, `{"burst":null,"daily":"10/day","per":null,"sustained":"600/min"}`},
		{`{"rate_limit": {}}`, `{"burst":null,"daily":"10/day","per":null,"sustained":"600/min"}`},
		{`{"rate_limit": null}`, `null`},
		{`{"rate_limit": {"sustained": "1/h"}}`, `{"burst":null,"daily":null,"per":null,"sustained":"1/h"}`},
	} {
		if got := limit(s.post(routes+"/"+id, step.body).want(200)); got != step.want {
			t.Errorf("after %s: got rate_limit %s, want %s", step.body, got, step.want)
		}
	}
	public := s.post(routes, map[string]any{"path": "/health", "methods": []string{"GET"}, "auth": "none"}).want(201)
	if public.json["auth"] != "none" || public.json["rate_limit"] != nil {
		t.Errorf("got %s, want auth none and no rate limit", public.raw)
	}
	s.post(routes, map[string]any{"path": "/orders/{number}", "methods": []string{"GET"}}).want(422)
	wantFields(t, s.do(request{method: "DELETE", path: routes + "/" + id}).want(200).json, routeFields)
	s.get(routes+"/"+id).refused(404, "not_found", "")
}

// Guarantee: a key is created, read, changed, rotated and revoked with the fields of the
// contract (sections 3.1 and 3.2).
func TestKeyIsCreatedRotatedAndRevoked(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	created := s.newKey(map[string]any{
		"name": "mobile", "scope": "read:orders", "gateway_id": gatewayID, "rate_limit": "10/s", "concurrency": 5, "owner": "ann",
		"metadata": map[string]string{"team": "a"}, "expires_at": "2027-03-05",
	})
	id := created.text("key_id")
	wantFields(t, created.json, keyFields+" key warnings")
	if created.header.Get("Location") != "/v1/keys/"+id || created.text("state") != "active" || created.text("expires_at") != "2027-03-06T00:00:00Z" ||
		!strings.HasPrefix(created.text("key"), created.text("key_prefix")) || created.text("level") != "gateway" {
		t.Errorf("got %v\n%s\nwant an active gateway-level key with Location", created.header, created.raw)
	}
	t.Run("only the creation returns the full key", func(t *testing.T) {
		s := s.in(t)
		got := s.get("/v1/keys/" + id).want(200)
		wantFields(t, got.json, keyFields)
		if got.json["concurrency"] != 5.0 {
			t.Errorf("got concurrency %v, want 5", got.json["concurrency"])
		}
		if strings.Contains(s.get("/v1/keys").want(200).raw, created.text("key")) {
			t.Error("the list contains the full key")
		}
	})
	t.Run("PATCH clears null fields and keeps absent ones", func(t *testing.T) {
		patched := s.in(t).do(request{method: "PATCH", path: "/v1/keys/" + id, body: `{"owner": null, "rate_limit": null, "concurrency": null, "metadata": null, "expires_at": null}`}).want(200)
		wantFields(t, patched.json, keyFields)
		for _, name := range []string{"owner", "rate_limit", "concurrency", "expires_at"} {
			if patched.json[name] != nil {
				t.Errorf("got %s = %v, want null", name, patched.json[name])
			}
		}
		if fmt.Sprint(patched.json["metadata"]) != "map[]" || patched.text("name") != "mobile" {
			t.Errorf("got %s, want no metadata and the same name", patched.raw)
		}
	})
	t.Run("a rotation creates a key and ends the old one after the overlap", func(t *testing.T) {
		s := s.in(t)
		rotated := s.post("/v1/keys/"+id+"/rotate", `{"overlap_days": 7}`).want(201)
		wantFields(t, rotated.json, keyFields+" key warnings overlap_ends_at")
		if rotated.text("rotated_from") != id || rotated.text("overlap_ends_at") != "2027-03-08T12:00:00Z" || rotated.text("key") == created.text("key") ||
			rotated.header.Get("Location") != "/v1/keys/"+rotated.text("key_id") {
			t.Errorf("got %s, want a new key rotated from %s", rotated.raw, id)
		}
		old := s.get("/v1/keys/" + id).want(200)
		if old.text("rotated_to") != rotated.text("key_id") || old.text("expires_at") != "2027-03-08T12:00:00Z" {
			t.Errorf("got %s, want rotated_to and the end of the overlap as expires_at", old.raw)
		}
		s.post("/v1/keys/"+id+"/rotate", `{"overlap_days": 7}`).refused(409, "conflict", "")
	})
	t.Run("a second revocation changes nothing", func(t *testing.T) {
		s := s.in(t)
		for range 2 {
			revoked := s.do(request{method: "DELETE", path: "/v1/keys/" + id}).want(200)
			wantFields(t, revoked.json, keyFields)
			if revoked.text("state") != "revoked" || revoked.text("revoked_at") != "2027-03-01T12:00:00Z" {
				t.Errorf("got %s, want it revoked at the first call", revoked.raw)
			}
			s.clock.move(time.Second)
		}
		s.do(request{method: "PATCH", path: "/v1/keys/" + id, body: `{"name": "x"}`}).refused(409, "conflict", "")
	})
}

// Guarantee: a key's rate limit is shown in the form in which it was given, also after a
// change and a rotation.
func TestKeyLimitKeepsItsForm(t *testing.T) {
	s := start(t)
	object := map[string]any{"sustained": "10/s", "daily": "5/day"}
	shown := map[string]any{"sustained": "10/s", "burst": nil, "daily": "5/day"}
	want := func(what string, r *response, want any) {
		t.Helper()
		if got := r.json["rate_limit"]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got rate_limit %v, want %v", what, got, want)
		}
	}
	created := s.newKey(map[string]any{"rate_limit": object})
	path := "/v1/keys/" + created.text("key_id")
	want("created", created, shown)
	want("read", s.get(path).want(200), shown)
	want("rotated", s.post(path+"/rotate", `{"overlap_days": 1}`).want(201), shown)
	patch := func(body string) *response { return s.do(request{method: "PATCH", path: path, body: body}) }
	want("to a rate", patch(`{"rate_limit": "7/s"}`).want(200), "7/s")
	want("to an object", patch(`{"rate_limit": {"burst": "3/s"}}`).want(200), map[string]any{"sustained": nil, "burst": "3/s", "daily": nil})
	want("to none", patch(`{"rate_limit": null}`).want(200), nil)
	for body, field := range map[string]string{
		`{}`: "rate_limit", `{"per": "key"}`: "rate_limit.per", `{"daily": "5/h"}`: "rate_limit.daily", `{"burst": "x"}`: "rate_limit.burst", `5`: "rate_limit",
		`{"daily": ""}`: "rate_limit.daily", `{"daily": null}`: "rate_limit", `""`: "rate_limit", `"{\"daily\":\"5/day\"}"`: "rate_limit",
	} {
		patch(`{"rate_limit": `+body+`}`).refused(422, "validation_failed", field)
	}
}

// Guarantee: a new key with several scopes is shown as given, and the response warns of
// each resource under which there is no route, in a replay too.
func TestNewKeyWarnsOfScopesWithoutRoute(t *testing.T) {
	s := start(t)
	gatewayID, other := s.newGateway(""), s.newGateway("")
	s.newRoute("", gatewayID, "/orders/{id}")
	s.newRoute("", other, "/customers")
	for _, c := range []struct {
		scope, level, gateway string
		warns                 []string
	}{
		{"read:orders write:customers", "gateway", "", nil},
		{"read:orders write:customers admin", "gateway", gatewayID, []string{"/customers"}},
		{"read:order write:orders-old read:orders", "gateway", "", []string{"/order,", "/orders-old,"}},
		{"read", "gateway", gatewayID, nil},
		{"read:nothing", "account", "", nil},
	} {
		body := map[string]any{"name": "a", "scope": c.scope, "level": c.level}
		if c.gateway != "" {
			body["gateway_id"] = c.gateway
		}
		for _, what := range []string{"first", "replayed"} {
			r := s.postWithKey("", "/v1/keys", c.scope, body).want(201)
			warnings, isArray := r.json["warnings"].([]any)
			ok := isArray && len(warnings) == len(c.warns) && r.text("scope") == c.scope
			for i := range c.warns {
				ok = ok && strings.Contains(fmt.Sprint(warnings[i]), c.warns[i])
			}
			if !ok {
				t.Errorf("%s %s: got %s\nwant warnings of %q", what, c.scope, r.raw, c.warns)
			}
		}
	}
	old := s.newKey(map[string]any{"scope": "read:gone"}).text("key_id")
	if r := s.post("/v1/keys/"+old+"/rotate", `{"overlap_days": 1}`).want(201); len(r.json["warnings"].([]any)) != 1 {
		t.Errorf("got %s, want one warning after a rotation", r.raw)
	}
}

// Guarantee: verify returns whether a key would be accepted, and if not, why.
func TestVerifySaysWhyAKeyIsRefused(t *testing.T) {
	s := start(t)
	gatewayID, other := s.newGateway(""), s.newGateway("")
	key := s.newKey(map[string]any{"scope": "read:orders", "gateway_id": gatewayID, "owner": "ann"})
	verify := func(body map[string]any) string {
		t.Helper()
		r := s.do(request{method: "POST", path: "/v1/keys/verify", key: s.accountKey("read"), body: body}).want(200)
		wantFields(t, r.json, "valid code key_id owner scope state reason issuer_id subject plan expires_at")
		const ofToken = `,"reason":null,"issuer_id":null,"subject":null,"plan":null,"expires_at":null`
		return strings.ReplaceAll(strings.Replace(strings.TrimSpace(r.raw), ofToken, "", 1), key.text("key_id"), "ID")
	}
	secret := key.text("key")
	for name, row := range map[string]struct {
		body map[string]any
		want string
	}{
		"good":          {map[string]any{"key": secret, "gateway_id": gatewayID, "method": "GET", "path": "/orders/1"}, `{"valid":true,"code":null,"key_id":"ID","owner":"ann","scope":"read:orders","state":"active"}`},
		"wrong method":  {map[string]any{"key": secret, "method": "POST", "path": "/orders/1"}, `{"valid":false,"code":"scope_insufficient","key_id":"ID","owner":"ann","scope":"read:orders","state":"active"}`},
		"wrong path":    {map[string]any{"key": secret, "method": "GET", "path": "/orders-old"}, `{"valid":false,"code":"scope_insufficient","key_id":"ID","owner":"ann","scope":"read:orders","state":"active"}`},
		"wrong gateway": {map[string]any{"key": secret, "gateway_id": other}, `{"valid":false,"code":"scope_insufficient","key_id":"ID","owner":"ann","scope":"read:orders","state":"active"}`},
		"unknown":       {map[string]any{"key": "kg_nonsense"}, `{"valid":false,"code":"key_invalid","key_id":null,"owner":null,"scope":null,"state":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := verify(row.body); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// Guarantee: documents are pushed, read, exported and rolled back as in the contract
// (sections 3.3 and 5), and a dry run changes nothing.
func TestDocumentsArePushedAndExported(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	at := "/v1/gateways/" + gatewayID
	s.get(at+"/spec").refused(404, "not_found", "")
	put := func(s *server, path, body, mediaType string) *response {
		s.t.Helper()
		return s.do(request{method: "PUT", path: at + path, body: body, header: map[string]string{"Content-Type": mediaType}})
	}
	const resultFields = "revision added removed changed unchanged warnings"
	t.Run("a dry run changes nothing", func(t *testing.T) {
		s := s.in(t)
		dry := put(s, "/spec?dry_run=true", petSpec, "application/yaml").want(200)
		wantFields(t, dry.json, resultFields)
		if dry.json["revision"] != nil || len(dry.json["added"].([]any)) != 2 || dry.json["added"].([]any)[0].(map[string]any)["route_id"] != nil {
			t.Errorf("dry run: got %s, want 2 added routes without identifiers and no revision", dry.raw)
		}
		if n := len(s.get(at + "/routes").want(200).data()); n != 0 {
			t.Errorf("got %d routes after a dry run, want 0", n)
		}
	})
	t.Run("a push replaces the routes and keeps the document", func(t *testing.T) {
		s := s.in(t)
		done := put(s, "/spec?dry_run=false", petSpec, "application/yaml").want(200)
		wantFields(t, done.json, resultFields)
		if done.json["revision"] != 1.0 || done.json["added"].([]any)[0].(map[string]any)["route_id"] == nil {
			t.Errorf("push: got %s, want revision 1 and routes with identifiers", done.raw)
		}
		if spec := s.get(at + "/spec").want(200); spec.raw != petSpec || spec.header.Get("Content-Type") != "application/yaml" {
			t.Errorf("got %s %q, want the pushed YAML", spec.header.Get("Content-Type"), spec.raw)
		}
		if again := put(s, "/spec", petSpec, "text/plain").want(200); again.json["revision"] != nil || again.json["unchanged"] != 2.0 {
			t.Errorf("second push: got %s, want no revision and 2 unchanged routes", again.raw)
		}
	})
	t.Run("a document in JSON is returned as JSON", func(t *testing.T) {
		s := s.in(t)
		inJSON := ` {"openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "paths": {"/a": {"get": {}}}}`
		s.do(request{
			method: "PUT", path: at + "/spec", body: inJSON, header: map[string]string{"X-Keygate-Source": "cli"},
		}).want(200)
		if spec := s.get(at + "/spec").want(200); spec.raw != inJSON || spec.header.Get("Content-Type") != "application/json" {
			t.Errorf("got %s %q, want the pushed JSON", spec.header.Get("Content-Type"), spec.raw)
		}
	})
	t.Run("the error of an invalid document has line and column", func(t *testing.T) {
		s := s.in(t)
		bad := put(s, "/spec", "openapi: 3.0.0\npaths: [", "application/yaml").want(422)
		if !strings.Contains(bad.text("message"), "line") || !strings.Contains(bad.text("message"), "column") {
			t.Errorf("got %s, want a message with line and column", bad.raw)
		}
		put(s, "/spec", "", "application/yaml").want(422)
	})
	t.Run("a revision has its number and counts", func(t *testing.T) {
		s := s.in(t)
		revision := s.get(at + "/revisions/2").want(200)
		wantFields(t, revision.json, "revision_id number source kind author commit created_at added removed changed")
		if revision.text("source") != "cli" || revision.text("kind") != "spec" || revision.json["added"] != 1.0 || revision.json["removed"] != 2.0 {
			t.Errorf("got %s, want a spec from cli that added 1 route and removed 2", revision.raw)
		}
		for _, number := range []string{"0", "9", "-1", "x", "01", "99999999999999999999"} {
			s.get(at+"/revisions/"+number).refused(404, "not_found", "")
		}
	})
	t.Run("a revision has its document", func(t *testing.T) {
		s := s.in(t)
		for number, mediaType := range map[string]string{"1": "application/yaml", "2": "application/json"} {
			got := s.get(at + "/revisions/" + number + "/content").want(200)
			if got.header.Get("Content-Type") != mediaType || (got.raw == petSpec) != (number == "1") {
				t.Errorf("revision %s: got %s %q", number, got.header.Get("Content-Type"), got.raw)
			}
		}
		s.get(at+"/revisions/3/content").refused(404, "not_found", "")
		s.get(at+"/revisions/x/content").refused(404, "not_found", "")
	})
	t.Run("two revisions can be compared", func(t *testing.T) {
		s := s.in(t)
		before, after := s.get(at+"/revisions/2/diff").want(200), s.get(at+"/revisions/2/diff?from=1").want(200)
		wantFields(t, after.json, resultFields)
		if before.raw != after.raw || len(after.json["added"].([]any)) != 1 || len(after.json["removed"].([]any)) != 2 || after.json["revision"] != nil {
			t.Errorf("got %s, and compared with the one before %s", after.raw, before.raw)
		}
		if first := s.get(at + "/revisions/1/diff?from=0").want(200); len(first.json["added"].([]any)) != 2 || first.raw != s.get(at+"/revisions/1/diff").want(200).raw {
			t.Errorf("got %s for the first revision, want its 2 routes", first.raw)
		}
		s.get(at+"/revisions/1/diff?from=7").refused(404, "not_found", "")
		s.get(at+"/revisions/x/diff").refused(404, "not_found", "")
		for _, from := range []string{"-1", "x", "01", "1.0"} {
			s.get(at+"/revisions/2/diff?from="+from).refused(422, "validation_failed", "from")
		}
	})
	t.Run("a dry run of a rollback changes nothing", func(t *testing.T) {
		s := s.in(t)
		dry := s.post(at+"/revisions/1/rollback?dry_run=true", nil).want(200)
		wantFields(t, dry.json, resultFields)
		if dry.json["revision"] != nil || len(dry.json["added"].([]any)) != 2 || dry.json["added"].([]any)[0].(map[string]any)["route_id"] != nil {
			t.Errorf("got %s, want 2 added routes without identifiers", dry.raw)
		}
		if n := len(s.get(at + "/revisions").want(200).data()); n != 2 {
			t.Errorf("got %d revisions, want 2", n)
		}
	})
	t.Run("a rollback is a new revision", func(t *testing.T) {
		s := s.in(t)
		rolled := s.post(at+"/revisions/1/rollback", nil).want(200)
		wantFields(t, rolled.json, resultFields)
		if rolled.json["revision"] != 3.0 || s.get(at+"/revisions/3").text("source") != "rollback" {
			t.Errorf("rollback: got %s, want revision 3 with source rollback", rolled.raw)
		}
	})
	t.Run("an export can be pushed again", func(t *testing.T) {
		s := s.in(t)
		// An export can be pushed again unchanged.
		exported := s.get(at + "/config").want(200)
		if exported.header.Get("Content-Type") != "application/yaml" {
			t.Errorf("got headers %v, want Content-Type application/yaml", exported.header)
		}
		if same := put(s, "/config?dry_run=true", exported.raw, "application/yaml").want(200); same.json["unchanged"] != 2.0 {
			t.Errorf("push of the export: got %s, want 2 unchanged routes\n%s", same.raw, exported.raw)
		}
		put(s, "/config", "routes:\n  - path: /a\n    methods: [GET]\n    rate_limit: {burst: nonsense}\n", "application/yaml").refused(422, "validation_failed", "routes[0].rate_limit.burst")
		put(s, "/config", "routes: []\nextra: 1\n", "application/yaml").refused(422, "validation_failed", "extra")
	})
}

// Guarantee: any account-level key may read its account; only keys of the account
// default may read the settings.
func TestOnlyTheOperatorReadsSettings(t *testing.T) {
	s := start(t)
	r := s.do(request{method: "GET", path: "/v1/account", key: s.accountKey("read:nothing/at/all")}).want(200)
	wantFields(t, r.json, "account_id name plan state hosts audit_retention_days created_at default_plan default_plan_id key user")
	wantFields(t, r.json["key"].(map[string]any), "key_id name scope")
	if r.text("name") != "default" || r.text("plan") != "platform" || r.json["audit_retention_days"] != 365.0 {
		t.Errorf("got %s, want the account default with plan platform", r.raw)
	}
	if got := s.get("/v1/settings").want(200).raw; got != `{"version":"v1.2.3","settings":[{"name":"gateway-addr","value":"127.0.0.1:8080","source":"default"}]}`+"\n" {
		t.Errorf("got settings %s", got)
	}
	other := s.newAccount("other")
	if r := s.do(request{method: "GET", path: "/v1/settings", key: other}).refused(403, "forbidden", ""); r.text("code") != "scope_insufficient" {
		t.Errorf("got %s, want code scope_insufficient", r.raw)
	}
	if r := s.do(request{method: "GET", path: "/v1/account", key: other}).want(200); r.text("plan") != "starter" || r.json["audit_retention_days"] != 90.0 {
		t.Errorf("got %s, want plan starter and 90 days of retention", r.raw)
	}
}

// Guarantee: contract 3. A second gateway with a name, or a second endpoint with a URL, is a 409 that names the field
// and the first one, unless allow_duplicate is set.
func TestDuplicatesAreRefused(t *testing.T) {
	s := start(t)
	for _, c := range []struct {
		path, field string
		body        map[string]any
	}{
		{"/v1/gateways", "name", map[string]any{"name": "a", "upstream_url": "http://127.0.0.1:9"}},
		{"/v1/webhooks", "url", map[string]any{"url": "https://hooks.example.com", "events": []string{"key.created"}}},
	} {
		created := s.post(c.path, c.body).want(201)
		id := strings.TrimPrefix(created.header.Get("Location"), c.path+"/")
		if r := s.post(c.path, c.body).refused(409, "conflict", c.field); !strings.Contains(r.text("message"), id) {
			t.Errorf("got %s, want it to name %s", r.raw, id)
		}
		c.body["allow_duplicate"] = false
		s.post(c.path, c.body).refused(409, "conflict", c.field)
		c.body["allow_duplicate"] = "yes"
		s.post(c.path, c.body).refused(422, "validation_failed", "allow_duplicate")
		c.body["allow_duplicate"] = true
		s.post(c.path, c.body).want(201)
	}
}
