package adminapi_test

import (
	"fmt"
	"strings"
	"testing"
)

const foreignKey = "sk_live_51HxAbCdEfGhIjKlMnOpQr"

// Guarantee: keys are imported in the order of the request, each with the fields of a key and its warnings; the response and
// its replay have no key string. The errors of a request name the key and the field, whether the form of the request or
// its content is wrong.
func TestImportKeys(t *testing.T) {
	s := start(t)
	body := map[string]any{"keys": []any{
		map[string]any{"name": "one", "scope": "read:orders", "key": foreignKey, "owner": "ann", "last_used_at": "2027-02-01T00:00:00Z"},
		map[string]any{"name": "two", "scope": "write", "sha256": strings.Repeat("0a", 32), "key_prefix": "old_", "rate_limit": map[string]any{"daily": "5/day"}},
	}}
	q := request{method: "POST", path: "/v1/keys/import", body: body, header: map[string]string{"Idempotency-Key": "import-1"}}
	got := s.do(q).want(201)
	records := got.data()
	if len(records) != 2 {
		t.Fatalf("got %s, want two records", got.raw)
	}
	for i, want := range []map[string]any{
		{"name": "one", "imported": true, "key_prefix": "sk_liv", "owner": "ann", "level": "gateway", "state": "active", "last_used_at": "2027-02-01T00:00:00Z"},
		{"name": "two", "imported": true, "key_prefix": "old_", "warnings": []any{"strength_unknown"}},
	} {
		wantFields(t, records[i], keyFields+" warnings")
		for name, value := range want {
			if fmt.Sprint(records[i][name]) != fmt.Sprint(value) {
				t.Errorf("key %d: got %s = %v, want %v", i, name, records[i][name], value)
			}
		}
	}
	if w := fmt.Sprint(records[0]["warnings"]); !strings.Contains(w, "/orders") || strings.Contains(w, "strength_unknown") {
		t.Errorf("got the warnings %s, want one about the scope alone", w)
	}
	if again := s.do(q).want(201); again.raw != got.raw {
		t.Errorf("a replay got %s, want %s", again.raw, got.raw)
	}
	all := s.get("/v1/keys").want(200).raw + s.get("/v1/audit-log").want(200).raw + s.get("/v1/events").want(200).raw + got.raw
	if strings.Contains(all, foreignKey[8:]) {
		t.Error("a response has the string of an imported key")
	}
	if !strings.Contains(s.get("/v1/audit-log").raw, `"key.import"`) {
		t.Error("the audit log has no key.import")
	}
	verify := func(key, secret string) string {
		return s.do(request{method: "POST", path: "/v1/keys/verify", key: key, body: map[string]any{"key": secret}}).want(200).raw
	}
	if got := verify("", foreignKey); !strings.Contains(got, `"valid":true`) {
		t.Errorf("got %s, want the key to be valid", got)
	}
	if got := verify(s.newAccount("other"), foreignKey); !strings.Contains(got, `"key_id":null`) {
		t.Errorf("another account got %s, want an unknown key", got)
	}
	s.post("/v1/keys/import", body).refused(409, "conflict", "keys[0].key")
	if got := s.post("/v1/keys/import", body); len(got.json["errors"].([]any)) != 2 {
		t.Errorf("got %s, want an error for each key", got.raw)
	}
	one := func(fields string) string {
		return `{"keys": [{"name": "a", "scope": "read", "key": "` + foreignKey + `-a"}, {"name": "a", "scope": "read", ` + fields + `}]}`
	}
	for fields, field := range map[string]string{
		`"key": "short"`: "keys[1].key", `"key": 5`: "keys[1].key", `"sha256": "x"`: "keys[1].sha256", `"key": null`: "keys[1].sha256",
		`"key": "` + foreignKey + `-b", "level": "account"`: "keys[1].level", `"key": "` + foreignKey + `-b", "gateway_id": "gw_x"`: "keys[1].gateway_id",
		`"key": "` + foreignKey + `-b", "key_prefix": "pk"`: "keys[1].key_prefix", `"key": "` + foreignKey + `-b", "imported": true`: "keys[1].imported",
		`"key": "` + foreignKey + `-b", "last_used_at": "2099-01-01T00:00:00Z"`: "keys[1].last_used_at", `"key": "` + foreignKey + `-a"`: "keys[1].key",
	} {
		s.post("/v1/keys/import", one(fields)).refused(422, "validation_failed", field)
	}
	s.post("/v1/keys/import", `{"keys": []}`).refused(422, "validation_failed", "keys")
	s.post("/v1/keys/import", `{}`).refused(422, "validation_failed", "keys")
	reader := s.accountKey("read")
	s.do(request{method: "POST", path: "/v1/keys/import", key: reader, body: one(`"key": "` + foreignKey + `-b"`)}).refused(403, "forbidden", "")
	writer := s.accountKey("write")
	s.do(request{method: "POST", path: "/v1/keys/import", key: writer, body: strings.Replace(one(`"key": "`+foreignKey+`-b"`), `"read"`, `"admin"`, 1)}).refused(403, "forbidden", "")
}

// Guarantee: a call imports 1,000 keys, also with a body beyond the usual bound, and no more.
func TestImportOfManyKeys(t *testing.T) {
	s := start(t)
	keys := make([]any, 1001)
	for i := range keys {
		keys[i] = map[string]any{
			"name": strings.Repeat("n", 255), "scope": "read", "key": fmt.Sprintf("%s-%d", foreignKey, i), "owner": fmt.Sprint("customer-", i%10),
			"metadata": map[string]string{"a": strings.Repeat("m", 255), "b": strings.Repeat("m", 255), "c": strings.Repeat("m", 255), "d": strings.Repeat("m", 255)},
		}
	}
	s.post("/v1/keys/import", map[string]any{"keys": keys}).refused(422, "validation_failed", "keys")
	if got := s.post("/v1/keys/import", map[string]any{"keys": keys[:1000]}).want(201); len(got.data()) != 1000 {
		t.Errorf("got %d records, want 1000", len(got.data()))
	}
}
