package provider

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest"
)

// Guarantee: the framework accepts the schema of every resource.
func TestSchema(t *testing.T) {
	c := start(t)
	res, err := c.server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	c.must(err, res.Diagnostics)
	for _, noun := range []string{"gateway", "upstream", "route", "key", "plan", "owner", "webhook", "issuer", "account"} {
		if res.ResourceSchemas["keygate_"+noun] == nil {
			t.Errorf("there is no keygate_%s", noun)
		}
	}
}

// lifecycle is what a test does with a resource: it is created with the first configuration, and updated to each other. What
// the state then must have is in want.
type lifecycle struct {
	noun    string
	configs []fields
	want    []fields
	drift   fields // what somebody else then changes of the last configuration
	destroy fields // applied before it is destroyed, if not nil
	again   fields // configuration for another one with a secret_file of its own, if the last one cannot be applied again
}

// Guarantee: every resource is created, updated, imported and destroyed. After each step there is nothing left to do, and an
// attribute that is not configured any more has the default of the API. An imported resource needs no change if nothing of it
// is write-only or written in another way than the API does, and is never replaced. What somebody else changes is shown and put
// right, and what somebody else deletes is created again.
func TestLifecycles(t *testing.T) {
	c := start(t)
	gateway := c.block("gateway")
	gatewayID := gateway.apply(fields{"name": "shared", "hostname": "shared.example.com", "upstream_url": "http://127.0.0.1:9"})["gateway_id"]
	dir := t.TempDir()
	for _, l := range lifecycles(gatewayID, dir) {
		t.Run(l.noun, func(t *testing.T) {
			b := c.block(l.noun)
			b.core = &core{t, c.keys, c.server}
			for i, config := range l.configs {
				got := b.apply(config)
				for name, want := range l.want[i] {
					if wanted, err := toJSON(b.values(b.config(fields{name: want}))[name], nil, false); err != nil || !reflect.DeepEqual(got[name], wanted) {
						t.Errorf("step %d: %s is %v, want %v", i, name, got[name], wanted)
					}
				}
			}
			last := l.configs[len(l.configs)-1]
			id := (&record{kind: b.kind}).importID(b.values(b.state))
			b.imported(id)
			if l.noun != "key" && l.noun != "webhook" && l.noun != "account" { // whose provider's own attributes are not in the record
				b.settled(last)
			}
			b.adopt(last)
			b.drift(l.drift, last)

			at := (&record{kind: b.kind}).path(b.values(b.state))
			if l.destroy != nil {
				b.apply(l.destroy)
			}
			if _, err := c.keys.Admin.Do(t.Context(), &client.Request{Method: "DELETE", Path: at}); err != nil {
				t.Fatal(err)
			}
			b.refresh()
			if !b.state.IsNull() {
				t.Errorf("the state of what was deleted is %v, want none", b.state)
			}
			b.private = nil
			if l.again != nil {
				last = l.again
			}
			b.apply(last)
			if l.destroy != nil {
				b.apply(l.destroy)
			}
			at = (&record{kind: b.kind}).path(b.values(b.state))
			b.destroy()
			got, err := c.keys.Admin.Do(t.Context(), &client.Request{Method: "GET", Path: at})
			if !client.IsNotFound(err) && (l.noun != "key" || !strings.Contains(string(got.Body), `"revoked"`)) {
				t.Errorf("GET %s after it was destroyed: %v, want 404", at, err)
			}
		})
	}
	gateway.destroy()
}

// adopt applies a configuration to what was imported, which must not be replaced.
func (b *block) adopt(f fields) {
	b.t.Helper()
	config := b.config(f)
	res, planned := b.plan(config)
	b.must(nil, res.Diagnostics)
	if len(res.RequiresReplace) > 0 {
		b.t.Errorf("keygate_%s: what was imported would be replaced because of %v", b.kind.noun, res.RequiresReplace)
	}
	b.must(nil, b.commit(config, res, planned))
	b.refresh()
	b.settled(f)
}

// drift has somebody else change the record. A refresh must show the change, and a configuration put it right.
func (b *block) drift(change, config fields) {
	b.t.Helper()
	body, err := json.Marshal(change)
	if err != nil {
		b.t.Fatal(err)
	}
	at := (&record{kind: b.kind}).path(b.values(b.state))
	if _, err := b.keys.Admin.Do(b.t.Context(), &client.Request{Method: "PATCH", Path: at, Body: body}); err != nil {
		b.t.Fatal(err)
	}
	before := b.state
	b.refresh()
	if len(change) == 0 || b.state.Equal(before) {
		b.t.Errorf("keygate_%s: a refresh does not show the change %s", b.kind.noun, body)
	}
	b.apply(config)
	if !b.state.Equal(before) {
		diff, _ := b.state.Diff(before)
		b.t.Errorf("keygate_%s: the change %s was not put right: %v", b.kind.noun, body, diff)
	}
}

func lifecycles(gatewayID any, dir string) []lifecycle {
	keyFile, accountFile := filepath.Join(dir, "key"), filepath.Join(dir, "account")
	return []lifecycle{
		{noun: "gateway", configs: []fields{
			{"name": "orders", "hostname": "orders.example.com", "upstream_url": "http://127.0.0.1:9", "timeout": "30s", "cors": fields{"origins": []string{"https://a.example.com"}}, "allow_ips": []string{"10.0.0.0/8"}},
			{"name": "orders2", "hostname": "orders.example.com", "upstream_url": "http://127.0.0.1:9", "cors": fields{"origins": []string{"https://b.example.com"}, "max_age": 60, "methods": []string{"GET"}, "headers": []string{"X-A"}}},
		}, want: []fields{{"timeout": "30s", "error_format": "keygate"}, {"name": "orders2", "timeout": "60s", "default": false}}, drift: fields{"cors": fields{"origins": []string{"https://c.example.com"}}}},
		{noun: "upstream", configs: []fields{
			{"gateway_id": gatewayID, "name": "blue", "targets": []fields{{"url": "http://127.0.0.1:9"}}, "ejection": false, "retries": fields{"attempts": 1}},
			{"gateway_id": gatewayID, "name": "blue", "targets": []fields{{"url": "http://127.0.0.1:9", "weight": 3}, {"url": "http://127.0.0.1:10"}}, "ejection": fields{"failures": 3}, "timeout": "5s"},
			{"gateway_id": gatewayID, "name": "green", "targets": []fields{{"url": "http://127.0.0.1:9", "backup": false, "drain": false, "resolve": "none", "weight": 1}}},
		}, want: []fields{{"ejection": false, "balance": "least_requests"}, {"timeout": "5s"}, {"name": "green"}}, drift: fields{"targets": []fields{{"url": "http://127.0.0.1:11"}}}},
		{noun: "route", configs: []fields{
			{"gateway_id": gatewayID, "path": "/orders", "methods": []string{"GET", "POST"}, "rate_limit": fields{"sustained": "10/second", "daily": "1000/day"}},
			{"gateway_id": gatewayID, "path": "/orders", "methods": []string{"GET"}, "rate_limit": fields{"sustained": "10/second"}, "strip_prefix": "/orders",
				"cost": []fields{{"meter": "tokens", "reserve": 5, "max": 100, "unknown": "max", "from": fields{"json": fields{"usage.total": 0.25}}}}},
			{"gateway_id": gatewayID, "path": "/orders", "methods": []string{"GET"}, "auth": "none"},
			{"gateway_id": gatewayID, "path": "/orders", "methods": []string{"GET"}},
		}, want: []fields{{"auth": "key"}, {}, {"auth": "none"}, {"auth": "key"}}, drift: fields{"methods": []string{"GET", "PUT"}}},
		{noun: "key", configs: []fields{
			{"name": "mobile", "scope": "read:orders", "secret_file": keyFile, "expires_at": "2099-01-01", "rate_limit": "10/second", "metadata": fields{"team": "a"}},
			{"name": "mobile app", "scope": "read:orders", "secret_file": keyFile, "rate_limit": fields{"sustained": "10/second", "burst": "20/second"}, "owner": "acme"},
			{"name": "mobile app", "scope": "write:orders", "secret_file": keyFile + "2"},
		}, want: []fields{{"level": "gateway"}, {"owner": "acme"}, {"scope": "write:orders"}}, drift: fields{"name": "other"},
			again: fields{"name": "mobile app", "scope": "write:orders", "secret_file": keyFile + "3"}},
		{noun: "plan", configs: []fields{
			{"name": "free", "title": "Free", "limits": []fields{{"name": "monthly", "quota": "1000/month", "warn_at": []int{80}}}},
			{"name": "free", "limits": []fields{{"name": "monthly", "quota": "2000/month"}, {"name": "rate", "sustained": "5/second"}}, "time_zone": "Europe/Berlin"},
			{"name": "basic"},
		}, want: []fields{{"time_zone": "UTC"}, {"time_zone": "Europe/Berlin"}, {"time_zone": "UTC", "name": "basic", "anchor_day": 1}}, drift: fields{"name": "other"}},
		{noun: "owner", configs: []fields{
			{"external_id": "customer-1", "name": "Customer", "state": "suspended", "metadata": fields{"a": "b"}},
			{"external_id": "customer-1", "state": "active", "anchor_day": 5},
			{"external_id": "customer-2", "name": "Other"},
		}, want: []fields{{"state": "suspended"}, {"state": "active"}, {"external_id": "customer-2"}}, drift: fields{"name": "Changed"}},
		{noun: "webhook", configs: []fields{
			{"url": "https://hooks.example.com/a", "events": []string{"key.created", "key.revoked"}, "signing_secret": "0123456789abcdef0123", "secrets_version": "1"},
			{"url": "https://hooks.example.com/b", "events": []string{"key.revoked"}, "state": "disabled", "signing_secret": "0123456789abcdef0123", "secrets_version": "1"},
		}, want: []fields{{"state": "active"}, {"state": "disabled"}}, drift: fields{"url": "https://hooks.example.com/c"}},
		{noun: "issuer", configs: []fields{
			{"name": "login", "issuer": "https://login.example.com", "audiences": []string{"https://api.example.com"}, "jwks_url": "https://login.example.com/keys", "leeway": "30s", "required": fields{"tenant": []string{"a", "b"}, "admin": true}},
			{"name": "login", "issuer": "https://login.example.com", "audiences": []string{"https://api.example.com"}, "jwks_url": "https://login.example.com/keys", "claims": fields{"owner": "sub"}},
		}, want: []fields{{"leeway": "30s"}, {"forward_token": false}}, drift: fields{"claims": fields{"owner": "email"}}},
		{noun: "account", configs: []fields{
			{"name": "team", "plan": "starter", "secret_file": accountFile},
			{"name": "team a", "plan": "platform", "secret_file": accountFile, "hosts": []string{"*.team.example.com"}},
		}, want: []fields{{"state": "active"}, {"plan": "platform"}}, drift: fields{"name": "other"},
			destroy: fields{"name": "team a", "plan": "platform", "state": "suspended", "secret_file": accountFile},
			again:   fields{"name": "team a", "plan": "platform", "secret_file": accountFile + "2"}},
	}
}

// Guarantee: the state has no secret, whether it was given or generated; a generated one is in its file, which only its owner may
// read, and works. A change of secrets_version sends given secrets again.
func TestSecrets(t *testing.T) {
	c := start(t)
	const given, changed = "Bearer 0123456789abcdefghij", "Bearer 9876543210abcdefghij"
	upstream := keygatetest.NewUpstream(t)
	gateway := c.block("gateway")
	config := fields{"name": "orders", "hostname": "orders.example.com", "upstream_url": upstream.URL, "upstream_headers": fields{"Authorization": given}}
	gatewayID := gateway.apply(config)["gateway_id"]
	route := c.block("route")
	route.apply(fields{"gateway_id": gatewayID, "path": "/a", "methods": []string{"GET"}, "auth": "none"})
	config["upstream_headers"] = fields{"Authorization": changed}
	gateway.settled(config)
	config["secrets_version"] = "2"
	gateway.apply(config)
	c.keys.Through("orders.example.com", "GET", "/a", "", "")
	if requests := upstream.Requests(); len(requests) != 1 || requests[0].Header.Get("Authorization") != changed {
		t.Errorf("the upstream got %v, want the header of the second configuration", requests)
	}
	if gateway.holds(given) || gateway.holds(changed) {
		t.Error("the state has a header of the upstream")
	}

	file := filepath.Join(t.TempDir(), "key")
	key := c.block("key")
	key.apply(fields{"name": "admin", "scope": "read", "level": "account", "secret_file": file})
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimSpace(string(content))
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v, %v, want 0600", info.Mode(), err)
	}
	if key.holds(secret) {
		t.Error("the state has the key")
	}
	if _, err := c.keys.Client(secret).Account(t.Context()); err != nil {
		t.Errorf("the key in the file: %v", err)
	}

	// A replacement would revoke the key before the new one is created.
	config = fields{"name": "admin", "scope": "write", "level": "account", "secret_file": file}
	if res, _ := key.plan(key.config(config)); len(res.RequiresReplace) != 1 {
		t.Errorf("another scope replaces because of %v, want scope", res.RequiresReplace)
	}
	if res, _ := c.block("key").plan(key.config(config)); !failed(res.Diagnostics) {
		t.Error("a plan would overwrite the file of a secret")
	}

	imported := c.block("key")
	config = fields{"name": "imported", "scope": "read", "key": "an-existing-key-of-ours-0001", "secrets_version": "1"}
	first := imported.apply(config)["key_id"]
	if is, err := c.keys.Admin.VerifyKey(t.Context(), client.VerifyKeyRequest{Key: new("an-existing-key-of-ours-0001")}); err != nil || is.KeyID == nil || *is.KeyID != first {
		t.Errorf("the key that was given is %v, %v, want %v", is, err, first)
	}
	if imported.holds("an-existing-key-of-ours-0001") {
		t.Error("the state has the key that was given")
	}
	config["key"], config["secrets_version"] = "an-existing-key-of-ours-0002", "2"
	if imported.apply(config)["key_id"] == first {
		t.Error("a change of secrets_version did not replace the key")
	}
}

// Guarantee: what somebody else changes is put right again if it is configured, and left alone if not. What somebody else deletes
// is created again.
func TestDrift(t *testing.T) {
	c := start(t)
	plan := c.block("plan")
	config := fields{"name": "free", "title": "Free", "limits": []fields{{"name": "monthly", "quota": "1000/month"}}}
	id, _ := plan.apply(config)["plan_id"].(string)
	other := client.PlanPatch{Title: client.Set("Changed"), TimeZone: client.Set("Europe/Berlin")}
	if _, err := c.keys.Admin.UpdatePlan(t.Context(), id, other); err != nil {
		t.Fatal(err)
	}
	plan.refresh()
	if got := plan.fields()["title"]; got != "Changed" {
		t.Errorf("after a refresh, title is %v, want Changed", got)
	}
	if got := plan.apply(config); got["title"] != "Free" || got["time_zone"] != "Europe/Berlin" {
		t.Errorf("title is %v and time_zone %v, want Free and Europe/Berlin", got["title"], got["time_zone"])
	}
	if _, err := c.keys.Admin.DeletePlan(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	plan.refresh()
	if !plan.state.IsNull() {
		t.Errorf("the state of a deleted plan is %v, want none", plan.state)
	}
	if plan.private = nil; plan.apply(config)["plan_id"] == id {
		t.Error("the plan was not created again")
	}

	key := c.block("key")
	keyID, _ := key.apply(fields{"name": "app", "scope": "read", "secret_file": filepath.Join(t.TempDir(), "key")})["key_id"].(string)
	if _, err := c.keys.Admin.RevokeKey(t.Context(), keyID); err != nil {
		t.Fatal(err)
	}
	key.refresh()
	if !key.state.IsNull() {
		t.Errorf("the state of a revoked key is %v, want none", key.state)
	}
}

// Guarantee: an update changes nothing if what it changes was changed by somebody else after the plan was made. A change of
// something else does not matter, and stays.
func TestConflict(t *testing.T) {
	c := start(t)
	plan := c.block("plan")
	id, _ := plan.apply(fields{"name": "free", "title": "Free"})["plan_id"].(string)
	config := plan.config(fields{"name": "free", "title": "Gratis"})
	res, planned := plan.plan(config)
	for _, other := range []client.PlanPatch{{TimeZone: client.Set("Europe/Berlin")}, {Title: client.Set("Changed")}} {
		if _, err := c.keys.Admin.UpdatePlan(t.Context(), id, other); err != nil {
			t.Fatal(err)
		}
	}
	diags := plan.commit(config, res, planned)
	if len(diags) != 1 || diags[0].Attribute.String() != `AttributeName("title")` || diags[0].Summary != "Changed meanwhile" {
		t.Errorf("got %v, want the error that title was changed meanwhile", diags)
	}
	plan.refresh()
	if got := plan.apply(fields{"name": "free", "title": "Gratis"}); got["title"] != "Gratis" || got["time_zone"] != "Europe/Berlin" {
		t.Errorf("title is %v and time_zone %v, want Gratis and Europe/Berlin", got["title"], got["time_zone"])
	}
}

// Guarantee: each error names the attribute, or the part of it, that is wrong, and nothing is created.
func TestErrors(t *testing.T) {
	c := start(t)
	dir := t.TempDir()
	existing := filepath.Join(dir, "existing")
	if err := os.WriteFile(existing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gatewayID, _ := c.block("gateway").apply(fields{"name": "a", "hostname": "a.example.com", "upstream_url": "http://127.0.0.1:9"})["gateway_id"].(string)
	c.block("upstream").apply(fields{"gateway_id": gatewayID, "name": "taken", "targets": []fields{{"url": "http://127.0.0.1:9"}}})
	for name, test := range map[string]struct {
		noun   string
		config fields
		at     string
		text   string
		apply  bool // the server finds it, when the plan is applied
	}{
		"a part of a list":           {"plan", fields{"name": "free", "limits": []fields{{"name": "ok", "quota": "5/day"}, {"name": "bad", "quota": "5/eon"}}}, `AttributeName("limits").ElementKeyInt(1).AttributeName("quota")`, "100000/month", false},
		"a choice":                   {"plan", fields{"name": "free", "limits": []fields{{"name": "ok", "quota": "5/day", "overage": "maybe"}}}, `AttributeName("limits").ElementKeyInt(0).AttributeName("overage")`, "refuse or allow", false},
		"a rate":                     {"route", fields{"gateway_id": gatewayID, "path": "/a", "methods": []string{"GET"}, "rate_limit": fields{"sustained": "5/week"}}, `AttributeName("rate_limit").AttributeName("sustained")`, "rate_limit.sustained must be a rate such as 600/min", false},
		"a duration":                 {"gateway", fields{"name": "b", "upstream_url": "http://127.0.0.1:9", "timeout": "30"}, `AttributeName("timeout")`, "30s", false},
		"a network":                  {"gateway", fields{"name": "b", "upstream_url": "http://127.0.0.1:9", "allow_ips": []string{"10.0.0.0/8", "10.0.0.1/8"}}, `AttributeName("allow_ips").ElementKeyInt(1)`, "203.0.113.0/24", false},
		"too few":                    {"route", fields{"gateway_id": gatewayID, "path": "/a", "methods": []string{}}, `AttributeName("methods")`, "methods must have at least 1 element.", false},
		"too large":                  {"plan", fields{"name": "free", "anchor_day": 29}, `AttributeName("anchor_day")`, "anchor_day must be at most 28.", false},
		"too long":                   {"plan", fields{"name": strings.Repeat("a", 65)}, `AttributeName("name")`, "must have at most 64 characters", false},
		"no address":                 {"gateway", fields{"name": "b"}, `AttributeName("upstream_url")`, "required for a new keygate_gateway", false},
		"no targets":                 {"upstream", fields{"gateway_id": gatewayID, "name": "blue"}, `AttributeName("targets")`, "required for a new keygate_upstream", false},
		"what only the server knows": {"plan", fields{"name": "not a name"}, `AttributeName("name")`, "a-z", true},
		"a part of an object":        {"gateway", fields{"name": "b", "upstream_url": "http://127.0.0.1:9", "cors": fields{"origins": []string{"nonsense"}}}, `AttributeName("cors")`, "", true},
		"a name that is taken":       {"gateway", fields{"name": "b", "hostname": "a.example.com", "upstream_url": "http://127.0.0.1:9"}, `AttributeName("hostname")`, "", true},
		"an imported key":            {"key", fields{"name": "b", "scope": "everything", "key": "an-existing-key-of-ours-0001"}, `AttributeName("scope")`, "read", true},
		"no secret":                  {"key", fields{"name": "b", "scope": "read"}, `AttributeName("secret_file")`, "Give it in key", false},
		"two secrets":                {"key", fields{"name": "b", "scope": "read", "key": "an-existing-key-of-ours-0001", "secret_file": filepath.Join(dir, "new")}, `AttributeName("secret_file")`, "remove secret_file", false},
		"no secret of an account":    {"account", fields{"name": "b", "plan": "starter"}, `AttributeName("secret_file")`, "gets it", false},
		"a file that exists":         {"key", fields{"name": "b", "scope": "read", "secret_file": existing}, `AttributeName("secret_file")`, "not overwritten", false},
		"a missing directory":        {"key", fields{"name": "b", "scope": "read", "secret_file": filepath.Join(dir, "a", "b")}, `AttributeName("secret_file")`, "Nothing was created", true},
		"an upstream that exists":    {"upstream", fields{"gateway_id": gatewayID, "name": "taken", "targets": []fields{{"url": "http://127.0.0.1:9"}}}, "", gatewayID + "/taken", true},
		"a gateway that is missing":  {"route", fields{"gateway_id": "gw_00000000000000000000000000", "path": "/a", "methods": []string{"GET"}}, "", "gateway", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.block(test.noun)
			b.core = &core{t, c.keys, c.server}
			config := b.config(test.config)
			res, planned := b.plan(config)
			diags := res.Diagnostics
			if failed(diags) == test.apply {
				t.Errorf("the plan has %v, want an error only if the server need not be asked", diags)
			}
			if !failed(diags) {
				diags = b.commit(config, res, planned)
			}
			if len(diags) != 1 {
				t.Fatalf("got %v, want an error", diags)
			}
			at := ""
			if diags[0].Attribute != nil {
				at = diags[0].Attribute.String()
			}
			if !strings.HasPrefix(at, test.at) || test.at == "" && at != "" || !strings.Contains(diags[0].Detail, test.text) {
				t.Errorf("got %s: %s at %s, want %q at %s", diags[0].Summary, diags[0].Detail, at, test.text, test.at)
			}
			if !b.state.IsNull() {
				t.Errorf("the state is %v, want none", b.state)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); !os.IsNotExist(err) {
		t.Errorf("a file was left behind: %v", err)
	}
}

// Guarantee: no error has a secret that was given, whoever finds it wrong.
func TestErrorsHaveNoSecret(t *testing.T) {
	c := start(t)
	const secret = "not-to-be-told"
	gatewayID := c.block("gateway").apply(fields{"name": "a", "upstream_url": "http://127.0.0.1:9"})["gateway_id"]
	pair := certificatetest.New(t, "client")
	for name, test := range map[string]struct {
		noun   string
		config fields
	}{
		"a key that is too short":        {"key", fields{"name": "b", "scope": "read", "key": secret}},
		"a key with a space":             {"key", fields{"name": "b", "scope": "read", "key": secret + " and much more of it"}},
		"a key that is too long":         {"key", fields{"name": "b", "scope": "read", "key": strings.Repeat(secret, 100)}},
		"a signing secret too short":     {"webhook", fields{"url": "https://hooks.example.com", "events": []string{"key.created"}, "signing_secret": secret}},
		"a signing secret too long":      {"webhook", fields{"url": "https://hooks.example.com", "events": []string{"key.created"}, "signing_secret": strings.Repeat(secret, 100)}},
		"a value of a header":            {"gateway", fields{"name": "b", "upstream_url": "http://127.0.0.1:9", "upstream_headers": fields{"Authorization": secret + "\n"}}},
		"a header that is not allowed":   {"gateway", fields{"name": "b", "upstream_url": "http://127.0.0.1:9", "upstream_headers": fields{"Host": secret}}},
		"a private key":                  {"gateway", fields{"name": "b", "upstream_url": "https://127.0.0.1:9", "upstream_client_certificate": string(pair.Cert), "upstream_client_key": secret}},
		"a private key of an upstream":   {"upstream", fields{"gateway_id": gatewayID, "name": "blue", "targets": []fields{{"url": "https://127.0.0.1:9"}}, "client_certificate": string(pair.Cert), "client_key": secret}},
		"a value of a header of checks":  {"upstream", fields{"gateway_id": gatewayID, "name": "blue", "targets": []fields{{"url": "https://127.0.0.1:9"}}, "health": fields{"path": "/", "headers": fields{"X-A": secret + "\n"}}}},
		"a header of an upstream, twice": {"upstream", fields{"gateway_id": gatewayID, "name": "blue", "targets": []fields{{"url": "https://127.0.0.1:9"}}, "headers": fields{"X-A": secret, "x-a": secret}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.block(test.noun)
			b.core = &core{t, c.keys, c.server}
			config := b.config(test.config)
			res, planned := b.plan(config)
			diags := res.Diagnostics
			if !failed(diags) {
				diags = b.commit(config, res, planned)
			}
			if !failed(diags) {
				t.Error("there is no error")
			}
			for _, d := range diags {
				if strings.Contains(d.Summary+d.Detail, secret) {
					t.Errorf("the secret is in %s: %s", d.Summary, d.Detail)
				}
			}
		})
	}
}

// Guarantee: a value that is known only after something else was created can be planned, and an import needs the whole identifier.
func TestUnknown(t *testing.T) {
	c := start(t)
	route := c.block("route")
	res, planned := route.plan(route.config(fields{"gateway_id": unknownValue, "path": "/a", "methods": []string{"GET"}}))
	c.must(nil, res.Diagnostics)
	if id := route.values(planned)["route_id"]; id.IsKnown() {
		t.Errorf("the plan has the route_id %v, want it unknown", id)
	}
	for _, id := range []string{"gw_1", "/rt_1", "gw_1/"} {
		got, err := c.server.ImportResourceState(t.Context(), &tfprotov6.ImportResourceStateRequest{TypeName: "keygate_route", ID: id})
		if err != nil || len(got.Diagnostics) != 1 || !strings.Contains(got.Diagnostics[0].Detail, "gateway_id/route_id") {
			t.Errorf("import %q: got %v, %v, want an error that names the form", id, got.Diagnostics, err)
		}
	}
}

// Guarantee: a write-only member of an object gets to the API with the object, and with a new secrets_version, and the state does
// not have it.
func TestSecretMembers(t *testing.T) {
	c := start(t)
	gatewayID := c.block("gateway").apply(fields{"name": "a", "upstream_url": "http://127.0.0.1:9"})["gateway_id"]
	upstream := c.block("upstream")
	config := fields{"gateway_id": gatewayID, "name": "blue", "targets": []fields{{"url": "http://127.0.0.1:9"}},
		"health": fields{"path": "/healthz", "headers": fields{"X-Check": "very-secret"}}}
	names := func() any {
		t.Helper()
		got, err := c.keys.Admin.Upstream(t.Context(), gatewayID.(string), "blue")
		if err != nil {
			t.Fatal(err)
		}
		if got.Health == nil {
			return nil
		}
		return slices.Sorted(maps.Keys(got.Health.Headers))
	}
	upstream.apply(config)
	if got := names(); !reflect.DeepEqual(got, []string{"X-Check"}) {
		t.Errorf("the checks have the headers %v, want X-Check", got)
	}
	config["health"] = fields{"path": "/healthz", "interval": "20s", "headers": fields{"X-Other": "very-secret"}}
	config["secrets_version"] = "2"
	upstream.apply(config)
	if got := names(); !reflect.DeepEqual(got, []string{"X-Other"}) {
		t.Errorf("the checks have the headers %v, want X-Other", got)
	}
	if upstream.holds("very-secret") {
		t.Error("the state has a header of the checks")
	}
	delete(config, "health")
	upstream.apply(config)
	if got := names(); got != nil {
		t.Errorf("the checks have the headers %v, want no checks", got)
	}
}

// Guarantee: the secrets of an upstream follow it when its address changes, although neither they nor secrets_version have changed.
// The API would remove them, or refuse the change.
func TestSecretsFollow(t *testing.T) {
	c := start(t)
	const given = "Bearer 0123456789abcdefghij"
	first, second := keygatetest.NewUpstream(t), keygatetest.NewUpstream(t)
	gateway := c.block("gateway")
	config := fields{"name": "orders", "hostname": "orders.example.com", "upstream_url": first.URL, "upstream_headers": fields{"Authorization": given}}
	gatewayID, _ := gateway.apply(config)["gateway_id"].(string)
	c.block("route").apply(fields{"gateway_id": gatewayID, "path": "/a", "methods": []string{"GET"}, "auth": "none"})
	config["upstream_url"] = second.URL
	gateway.apply(config)
	c.keys.Through("orders.example.com", "GET", "/a", "", "")
	if requests := second.Requests(); len(requests) != 1 || requests[0].Header.Get("Authorization") != given {
		t.Errorf("the upstream got %v, want a request with the header", requests)
	}

	pair := certificatetest.New(t, "client")
	gateway = c.block("gateway")
	config = fields{"name": "invoices", "upstream_url": "https://127.0.0.1:9", "upstream_client_certificate": string(pair.Cert), "upstream_client_key": string(pair.Key)}
	gateway.apply(config)
	config["upstream_url"] = "https://127.0.0.1:10"
	if gateway.apply(config)["upstream_client_certificate"] == nil {
		t.Error("the gateway has lost its client certificate")
	}

	upstream := c.block("upstream")
	config = fields{"gateway_id": gatewayID, "name": "blue", "targets": []fields{{"url": "https://127.0.0.1:9"}}, "headers": fields{"Authorization": given},
		"client_certificate": string(pair.Cert), "client_key": string(pair.Key), "health": fields{"path": "/healthz", "headers": fields{"X-Check": given}}}
	upstream.apply(config)
	config["targets"] = []fields{{"url": "https://127.0.0.1:9"}, {"url": "https://127.0.0.1:10"}}
	upstream.apply(config)
	got, err := c.keys.Admin.Upstream(t.Context(), gatewayID, "blue")
	if err != nil || len(got.Targets) != 2 || len(got.Headers) != 1 || got.ClientCertificate == nil || got.Health == nil || len(got.Health.Headers) != 1 {
		t.Errorf("the upstream is %+v, %v, want two targets and all secrets", got, err)
	}
}

// Guarantee: the upstream default, which comes with its gateway, can be configured without an import. What is not configured stays
// as it was, and destroying it leaves it as it is.
func TestDefaultUpstream(t *testing.T) {
	c := start(t)
	gateway := c.block("gateway")
	config := fields{"name": "orders", "upstream_url": "http://127.0.0.1:9", "timeout": "20s"}
	gatewayID, _ := gateway.apply(config)["gateway_id"].(string)
	upstream := c.block("upstream")
	upstream.apply(fields{"gateway_id": gatewayID, "name": "default", "targets": []fields{{"url": "http://127.0.0.1:9"}, {"url": "http://127.0.0.1:10"}}})
	gateway.refresh()
	gateway.settled(config)
	upstream.destroy()
	if got, err := c.keys.Admin.Upstream(t.Context(), gatewayID, "default"); err != nil || len(got.Targets) != 2 {
		t.Errorf("the upstream is %+v, %v, want it as it was", got, err)
	}
	gateway.destroy()
}

// Guarantee: the provider takes its address and key from the environment, and says which of them it lacks.
func TestProviderSettings(t *testing.T) {
	t.Setenv(urlVariable, "http://127.0.0.1:9")
	t.Setenv(keyVariable, "")
	c := &core{t: t, server: providerserver.NewProtocol6(New("test")())()}
	object := tftypes.Object{AttributeTypes: map[string]tftypes.Type{"url": tftypes.String, "api_key": tftypes.String}}
	for want, config := range map[string]map[string]any{
		"KEYGATE_API_KEY":               {"url": nil, "api_key": nil},
		"is not a valid server":         {"url": "nonsense", "api_key": "kga_1"},
		"known only after":              {"url": tftypes.UnknownValue, "api_key": "kga_1"},
		"not allowed in a key":          {"url": nil, "api_key": "kga_secret b"},
		"is not a valid server address": {"url": "http://me:secret@127.0.0.1:9", "api_key": "kga_1"},
		"":                              {"url": nil, "api_key": "kga_1"},
	} {
		values := map[string]tftypes.Value{}
		for name, v := range config {
			values[name] = tftypes.NewValue(tftypes.String, v)
		}
		res, err := c.server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: c.encode(tftypes.NewValue(object, values))})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Diagnostics) > 1 || (want == "") != (len(res.Diagnostics) == 0) || want != "" && !strings.Contains(res.Diagnostics[0].Detail, want) {
			t.Errorf("%v: got %v, want an error with %q", config, res.Diagnostics, want)
		}
		for _, d := range res.Diagnostics {
			if strings.Contains(d.Summary+d.Detail, "secret") {
				t.Errorf("a secret is in %s: %s", d.Summary, d.Detail)
			}
		}
	}
}
