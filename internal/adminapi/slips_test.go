package adminapi_test

import (
	"slices"
	"strings"
	"testing"
)

// Guarantee: every form of a number that JSON Schema counts as an integer is accepted as an integer, and
// a byte order mark before a body is skipped (contract, section 2).
func TestValidFormsOfBodiesAreTaken(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	for _, n := range []string{"1024", "1024.0", "1.024e3", "10240E-1"} {
		s.clock.move(1e9)
		got := s.do(request{method: "PATCH", path: "/v1/gateways/" + gatewayID, body: "\ufeff{\"max_body_bytes\": " + n + "}"}).want(200)
		if !strings.Contains(got.raw, `"max_body_bytes":1024,`) {
			t.Errorf("%s: got %s, want max_body_bytes 1024", n, got.raw)
		}
	}
	for _, n := range []string{"1024.5", "0.5", "1e-3", "1e30", "-1.0"} {
		s.clock.move(1e9)
		s.do(request{method: "PATCH", path: "/v1/gateways/" + gatewayID, body: "{\"max_body_bytes\": " + n + "}"}).refused(422, "validation_failed", "max_body_bytes")
	}
	key := s.newKey(map[string]any{"name": "a", "scope": "read", "expires_at": "9999-12-31"}).want(201)
	if got := key.text("expires_at"); got != "9999-12-31T23:59:59.999999Z" {
		t.Errorf("a key for all days: got expires_at %s, want the last microsecond of the year 9999", got)
	}
	rotated := s.do(request{method: "POST", path: "/v1/keys/" + key.text("key_id") + "/rotate", body: `{"overlap_days": 7.0}`}).want(201)
	if rotated.text("rotated_from") != key.text("key_id") {
		t.Errorf("got %s, want a rotated key", rotated.raw)
	}
	spec := "\ufeff%YAML 1.2\n---\n" + petSpec
	s.do(request{method: "PUT", path: "/v1/gateways/" + gatewayID + "/spec", body: spec, header: map[string]string{"Content-Type": "application/yaml"}}).want(200)
	if got := s.get("/v1/gateways/" + gatewayID + "/spec").want(200); got.raw != spec {
		t.Errorf("got the document %q, want it byte for byte, with its mark", got.raw)
	}
}

// Guarantee: the 400 of a body that is not JSON names the position, what is wrong there and the remedy.
// It does not repeat a value, which may be secret.
func TestSlipsInBodiesAreExplained(t *testing.T) {
	s := start(t)
	for body, want := range map[string]string{
		"{\n  \"name\": \"a\",\n}":                     "at line 2, column 14: there is a comma before the closing }: remove it",
		"{\"name\": \"a\", // comment\n \"scope\": 1}": "at line 1, column 15: JSON has no comments: remove it",
		`{'name': 'a'}`:                                "at line 1, column 2: names and strings need double quotes",
		`{name: "a"}`:                                  `at line 1, column 2: a name needs double quotes: write "name"`,
		`{“name”: "a"}`:                                "at line 1, column 2: the character “ (U+201C) is a typographic quote",
		"{\"name\":\u00a0\"a\"}":                       "at line 1, column 9: the character U+00A0 is a no-break space",
		`{"name": "a" "scope": "read"}`:                "at line 1, column 14: a comma is missing before this",
		`{"name" "a"}`:                                 "at line 1, column 9: a colon is missing",
		`{"name": True}`:                               "at line 1, column 10: True is not a value in JSON: write true",
		`{"name": None}`:                               "at line 1, column 10: None is not a value in JSON: write null",
		`{"name": whsec_abc}`:                          "at line 1, column 10: this is not a value in JSON: put a text in double quotes",
		`{"max_body_bytes": 007}`:                      "at line 1, column 20: this is not a number in JSON",
		`{"max_body_bytes": 0x10}`:                     "at line 1, column 20: this is not a number in JSON",
		"{\"name\": \"a\nb\"}":                         "at line 1, column 12: a string must end on its line",
		"{\"name\": \"a\tb\"}":                         `at line 1, column 12: a tab is not allowed in a string: write \t`,
		`{"name": "C:\dir"}`:                           `at line 1, column 13: in a string, \ begins an escape`,
		`{"name": "a`:                                  "at line 1, column 10: the JSON text ends too early: this string has no quote at its end",
		`{"name": ["a"`:                                "at line 1, column 14: the JSON text ends too early: close the [ of line 1, column 10 with ]",
		`{"name": ["a"}`:                               "at line 1, column 14: this } does not close the [ of line 1, column 10: write ]",
		`{"name": "a"}}`:                               "at line 1, column 14: there is a } too many",
		`{"name": "a"} {}`:                             "at line 1, column 15: there is text after the end",
		`{"name": "a", "name": "b"}`:                   `at line 1, column 15: the name "name" is a duplicate`,
		"{\"name\": \"caf\xe9\"}":                      "at line 1, column 14: the text must be UTF-8: the byte 0xe9 is invalid here; it is 'é' in Latin-1",
		"{\x00\"\x00n\x00a\x00m\x00":                   "at line 1, column 1: the text must be UTF-8, and looks like UTF-16",
		"{\r\n\"a\": 1,\r\n\"b\": x}":                  "at line 3, column 6: ",
	} {
		s.clock.move(1e9)
		got := s.do(request{method: "POST", path: "/v1/keys", body: body}).want(400)
		if message := got.text("message"); !strings.Contains(message, want) || strings.Contains(message, "whsec") {
			t.Errorf("%q:\ngot  %s\nwant %s", body, message, want)
		}
	}
}

// Guarantee: a route that is invalid in itself is compared with the other routes nevertheless. A route
// whose path is in another router's language is refused, and the error says what to write.
func TestAllMistakesOfOneRouteAreReported(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	routes := "/v1/gateways/" + gatewayID + "/routes"
	first, second := s.newRoute("", gatewayID, "/a"), s.newRoute("", gatewayID, "/b")
	for _, c := range []struct {
		method, path, body string
		want               []string
	}{
		{"POST", routes, `{"path": "/a", "methods": ["GET"], "rate_limit": {"burst": "x"}, "auth": "maybe"}`, []string{"methods", "rate_limit.burst", "auth"}},
		{"POST", routes, `{"path": "/a", "methods": ["GET"], "rate_limit": {"burst": 10}}`, []string{"methods", "rate_limit.burst"}},
		{"POST", routes, `{"path": "a", "methods": ["get"], "rate_limit": {}, "colour": 1}`, []string{"path", "methods", "rate_limit", "colour"}},
		{"PATCH", routes + "/" + second, `{"path": "/a", "rate_limit": {"burst": "x"}}`, []string{"rate_limit.burst", "methods"}},
		{"PATCH", routes + "/" + first, `{"rate_limit": {"burst": "x", "daily": "1/s"}}`, []string{"rate_limit.burst", "rate_limit.daily"}},
		{"POST", routes, `{"path": "/a/:id", "methods": ["ANY"]}`, []string{"path", "methods"}},
		{"POST", routes, `{"path": "/a/{proxy+}", "methods": ["GET"]}`, []string{"path"}},
		{"PATCH", routes + "/" + first, `{"path": "/a/{id:[0-9]+}"}`, []string{"path"}},
	} {
		s.clock.move(1e9)
		if got := s.do(request{method: c.method, path: c.path, body: c.body}).want(422).fields(); !slices.Equal(got, c.want) {
			t.Errorf("%s with %s: got errors for %q, want %q", c.method, c.body, got, c.want)
		}
	}
	s.do(request{method: "PATCH", path: routes + "/" + first, body: `{"methods": ["GET", "HEAD"]}`}).want(200)
}

// Guarantee: a push, and its dry run, say which routes mean something else in another router's language.
func TestPushesWarnOfRoutesOfOtherRouters(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	yaml := map[string]string{"Content-Type": "application/yaml"}
	for path, body := range map[string]string{
		"config": "routes: [{path: '/a/:id', methods: [GET]}]\n",
		"spec":   "openapi: 3.1.0\npaths: {'/a/:id': {get: {}}}\n",
	} {
		for _, query := range []string{"?dry_run=true", ""} {
			got := s.do(request{method: "PUT", path: "/v1/gateways/" + gatewayID + "/" + path + query, body: body, header: yaml}).want(200)
			if !strings.Contains(got.raw, "write {name} for a parameter") {
				t.Errorf("%s%s: got %s, want a warning of /a/:id", path, query, got.raw)
			}
		}
	}
}

// Guarantee: an unusual method of a route stands, and every response with it, dry runs included, warns of it and
// names the method that was probably meant.
func TestUnusualMethodsAreWarnedOf(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	const want = "POSTT is not a usual method: did you mean POST?"
	at := "/v1/gateways/" + gatewayID
	created := s.post(at+"/routes", map[string]any{"path": "/x", "methods": []string{"POSTT"}}).want(201)
	plain := s.post(at+"/routes", map[string]any{"path": "/y", "methods": []string{"POST", "PURGE"}}).want(201)
	if _, warned := plain.json["warnings"]; warned || !strings.Contains(created.raw, `"warnings":["`+want+`"]`) {
		t.Errorf("got %s and %s, want a warning in the first alone", created.raw, plain.raw)
	}
	patched := s.do(request{method: "PATCH", path: at + "/routes/" + plain.text("route_id"), body: `{"methods": ["GTE"]}`}).want(200)
	if !strings.Contains(patched.raw, "GTE is not a usual method: did you mean GET?") {
		t.Errorf("got %s, want a warning of GTE", patched.raw)
	}
	yaml := map[string]string{"Content-Type": "application/yaml"}
	for path, body := range map[string]string{
		"config": "routes: [{path: /a, methods: [POSTT]}]\n",
		"spec":   "openapi: 3.2.0\npaths: {/a: {additionalOperations: {POSTT: {}}}}\n",
	} {
		for _, query := range []string{"?dry_run=true", ""} {
			got := s.do(request{method: "PUT", path: at + "/" + path + query, body: body, header: yaml}).want(200)
			if !strings.Contains(got.raw, want) {
				t.Errorf("%s%s: got %s, want %q", path, query, got.raw, want)
			}
		}
	}
}
