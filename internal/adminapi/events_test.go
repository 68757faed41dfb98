package adminapi_test

import (
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/adminapi"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
)

// events records the authentication records of an API and passes them on.
type events struct {
	next adminapi.Recorder
	mu   sync.Mutex
	all  []audit.Record
}

func (e *events) Record(r *audit.Record) {
	e.next.Record(r)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, *r)
}

// take returns the records since the last call.
func (e *events) take() []audit.Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

// Guarantee: each call that needs a key makes one authentication record, with its
// outcome and only the prefix of the key. A call that needs no key makes none
// (contract, section 7).
func TestEachAuthenticationIsRecorded(t *testing.T) {
	s := start(t)
	secret := func(fields map[string]any) string { return s.newKey(fields).json["key"].(string) }
	reader := secret(map[string]any{"name": "r", "scope": "read", "level": "account"})
	expiring := secret(map[string]any{"name": "e", "scope": "admin", "level": "account", "expires_at": "2027-03-01T12:00:05Z"})
	ofGateways := secret(map[string]any{"name": "g", "scope": "admin"})
	s.clock.move(10 * 1e9)
	other := s.newAccount("other")
	s.events.take()
	unknown := "kga_000000000000000000000000000000" // no checksum
	for _, tc := range []struct {
		name, method, path, key string
		outcome                 audit.Outcome
		prefix                  string
		hasKey, hasAccount      bool // the record has a key_id, an account ID
	}{
		{"a success", "GET", "/v1/keys?limit=2", s.admin, audit.Success, s.admin[:10], true, true},
		{"a success of another account", "GET", "/v1/keys", other, audit.Success, other[:10], true, true},
		{"an unknown record", "GET", "/v1/keys/key_none", s.admin, audit.Success, s.admin[:10], true, true},
		{"an unknown path", "GET", "/v1/none", s.admin, audit.Success, s.admin[:10], true, true},
		{"a method that is not allowed", "PUT", "/v1/keys", s.admin, audit.Success, s.admin[:10], true, true},
		{"an insufficient scope", "DELETE", "/v1/gateways/gw_none", reader, audit.ScopeInsufficient, reader[:10], true, true},
		{"a key that creates one with more rights", "POST", "/v1/keys", reader, audit.ScopeInsufficient, reader[:10], true, true},
		{"an expired key", "GET", "/v1/keys", expiring, audit.KeyExpired, expiring[:10], true, true},
		{"a key of the other plane", "GET", "/v1/keys", ofGateways, audit.KeyInvalid, ofGateways[:9], false, true},
		{"no key", "GET", "/v1/keys", "-", audit.KeyInvalid, "", false, false},
		{"a malformed key", "GET", "/v1/keys", "secret", audit.KeyInvalid, "", false, false},
		{"a wrong checksum", "GET", "/v1/keys", unknown + "000000", audit.KeyInvalid, "", false, false},
	} {
		q := request{method: tc.method, path: tc.path, key: tc.key}
		if tc.method == "POST" {
			q.body = map[string]any{"name": "x", "scope": "admin", "level": "account"}
		}
		t.Run(tc.name, func(t *testing.T) {
			s.in(t).do(q)
			records := s.events.take()
			if len(records) != 1 {
				t.Fatalf("got %d records, want 1", len(records))
			}
			e := records[0]
			if e.Kind != audit.Authentication || e.Outcome != tc.outcome || e.KeyPrefix != tc.prefix {
				t.Errorf("got %+v, want outcome %s, key prefix %q", e, tc.outcome, tc.prefix)
			}
			if hasKey := e.KeyID != ""; hasKey != tc.hasKey {
				t.Errorf("got key ID %q, want one: %t", e.KeyID, tc.hasKey)
			}
			if hasAccount := e.AccountID != ""; hasAccount != tc.hasAccount {
				t.Errorf("got account ID %q, want one: %t", e.AccountID, tc.hasAccount)
			}
			if e.Method != tc.method || e.Path == "" || e.ClientIP != "127.0.0.1" || e.RequestID == "" || !e.Time.Equal(s.clock.Now()) || apikey.PrefixOf(e.Path) != "" {
				t.Errorf("got %+v, want method %s, a path without a key, client 127.0.0.1, a request ID and the time of the call", e, tc.method)
			}
		})
	}
	s.get("/v1/openapi.json")
	if records := s.events.take(); len(records) != 0 {
		t.Errorf("a call that needs no key: got records %+v, want none", records)
	}
}
