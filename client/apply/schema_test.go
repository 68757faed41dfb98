package apply_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/keygate/keygate/client/apply"
	"github.com/keygate/keygate/internal/gateway"
)

func validateFile(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// Guarantee: the schema accepts files of gateways, of plans and of issuers that are valid, and rejects every structural mistake
// in them, as reading the files does.
func TestSchemaIsOfAllKindsOfFiles(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(apply.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(gateway.SchemaID, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(gateway.SchemaID)
	if err != nil {
		t.Fatal(err)
	}
	const iss = "name: a, issuer: https://a.example, audiences: [b]"
	limit := func(fields string) string { return "plans: [{name: a, limits: [{" + fields + "}]}]" }
	for text, valid := range map[string]bool{
		"routes: []": true, "gateway: {name: a, default_plan: b}\nroutes: []": true, "gateway: {name: a}": false, "routes: {}": false,
		"issuers: []": true, "$schema: x\nissuers: []": true, "issuers: []\nroutes: []": false, "issuers: {}": false, "issuers: [a]": false, "issuers: []\nplans: []": false,
		"issuers: [{" + iss + "}]": true, "issuers: [{name: a}]": false, "issuers: [{name: a, issuer: https://a.example, audiences: []}]": false, "issuers: [{" + iss + ", state: ok}]": false,
		"issuers: [{" + iss + ", jwks_url: https://a.example/keys, ca: null, algorithms: [ES384], leeway: 0s, max_lifetime: 1h, typ: at+jwt, required: {a: 1, b: [x, true]}}]":        true,
		"issuers: [{" + iss + ", claims: {scope: a.b, owner: null}, scope_map: {a b: read}, default_scopes: [read], owner_prefix: '', claim_headers: {X-A: b}, forward_token: true}]": true,
		"issuers: [{" + iss + ", algorithms: [HS256]}]": false, "issuers: [{" + iss + ", jwks_url: http://a.example}]": false, "issuers: [{" + iss + ", claims: {email: a}}]": false,
		"issuers: [{" + iss + ", required: {a: null}}]": false, "issuers: [{" + iss + ", forward_token: 'yes'}]": false, "issuers: [{" + iss + ", jwks: []}]": false,
		"plans: []": true, "$schema: x\nplans: []": true, "plans: []\nroutes: []": false, "plans: {}": false, "plans: [a]": false, "plans: [{name: a}]": false,
		"plans: [{limits: []}]": false, "plans: [{name: A, limits: []}]": false, "plans: [{name: a, limits: [], anchor_day: 29}]": false,
		"plans: [{name: a, limits: [], title: null, time_zone: UTC, anchor_day: 28}]": true, "plans: [{name: a, limits: [], quota: 5}]": false,
		limit("name: b, sustained: 5/s"): true, limit("name: b, sustained: 5/s, burst: null, per: owner, gateway: g, routes: [/a, /b/*]"): true,
		limit("name: b"): false, limit("sustained: 5/s"): false, limit("name: b, sustained: null"): false, limit("name: b, sustained: 5"): false,
		limit("name: b, sustained: 5/x"): false, limit("name: b, sustained: 5/s, per: ip"): false, limit("name: b, sustained: 5/s, gateway: g, routes: [a]"): false,
		limit("name: b, sustained: 5/s, gateway_id: g"): false,
		limit("name: b, quota: 5/month, meter: tokens"): true, limit("name: b, quota: 5/month"): true, limit("name: b, sustained: null, quota: 5/total, meter: requests, overage: allow, warn_at: [1, 200], per: owner"): true,
		limit("name: b, concurrency: 5"): true, limit("name: b, concurrency: 1000000, per: owner, meter: requests, burst: null, gateway: g, routes: [/a]"): true,
		limit("name: b, concurrency: 0"): false, limit("name: b, concurrency: 1000001"): false, limit("name: b, concurrency: 5/s"): false, limit("name: b, concurrency: null"): false,
		limit("name: b, concurrency: 5, burst: 5/s"): false, limit("name: b, concurrency: 5, meter: tokens"): false, limit("name: b, concurrency: 5, warn_at: [80]"): false,
		limit("name: b, concurrency: 5, overage: allow"): false, limit("name: b, concurrency: 5, quota: 5/day"): false, limit("name: b, concurrency: 5, sustained: 5/s"): false,
		limit("name: b, sustained: 5/s, quota: null, concurrency: null, warn_at: null"): true, limit("name: b, sustained: null, quota: null"): false,
		limit("name: b, sustained: 5/s, quota: 5/day"): false, limit("name: b, quota: 5/hour"): false, limit("name: b, quota: 5/day, burst: 5/s"): false,
		limit("name: b, sustained: 5/s, overage: allow"): false, limit("name: b, sustained: 5/s, warn_at: []"): false, limit("name: b, quota: 5/day, warn_at: [0]"): false,
		limit("name: b, quota: 5/day, warn_at: [1, 2, 3, 4, 5, 6]"): false, limit("name: b, quota: 5/day, overage: no"): false, limit("name: b, quota: 5/day, meter: Tokens"): false,
	} {
		file := filepath.Join(t.TempDir(), "file.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := apply.Read(apply.Source{}, file); (err == nil) != valid {
			t.Errorf("%s: reading it says %v", text, err)
		}
		if err := validateFile(t, s, text); (err == nil) != valid {
			t.Errorf("%s: the schema says %v", text, err)
		}
	}
	withVariable := `plans: [{name: "${env:PLAN}", limits: [{name: b, sustained: "${env:RATE}", gateway: g, routes: ["${env:PATH}"]}]}]`
	if err := validateFile(t, s, withVariable); err != nil {
		t.Errorf("the schema says %v of a file with variables", err)
	}
}
