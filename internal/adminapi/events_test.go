package adminapi_test

import (
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/adminapi"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
)

// events keeps the authentication events that an API tells.
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

// take returns what was told since the last call.
func (e *events) take() []audit.Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

// Guarantee: each call that needs a key is told as one authentication event, with
// how it ended and never with more of the key than its prefix; a call that needs
// none is not (contract, section 7).
func TestAuthenticationEvents(t *testing.T) {
	s := start(t)
	secret := func(members map[string]any) string { return s.newKey(members).json["key"].(string) }
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
		known, own              bool // the event has the key's identifier, and the account's
	}{
		{"a success", "GET", "/v1/keys?limit=2", s.admin, audit.Success, s.admin[:10], true, true},
		{"another account's success", "GET", "/v1/keys", other, audit.Success, other[:10], true, true},
		{"no such record", "GET", "/v1/keys/key_none", s.admin, audit.Success, s.admin[:10], true, true},
		{"no such path", "GET", "/v1/none", s.admin, audit.Success, s.admin[:10], true, true},
		{"no such method", "PUT", "/v1/keys", s.admin, audit.Success, s.admin[:10], true, true},
		{"a scope that is too narrow", "DELETE", "/v1/gateways/gw_none", reader, audit.ScopeInsufficient, reader[:10], true, true},
		{"a key that gives more than it has", "POST", "/v1/keys", reader, audit.ScopeInsufficient, reader[:10], true, true},
		{"an expired key", "GET", "/v1/keys", expiring, audit.KeyExpired, expiring[:10], true, true},
		{"a key of the other plane", "GET", "/v1/keys", ofGateways, audit.KeyInvalid, ofGateways[:9], false, true},
		{"no key", "GET", "/v1/keys", "-", audit.KeyInvalid, "", false, false},
		{"no key's form", "GET", "/v1/keys", "secret", audit.KeyInvalid, "", false, false},
		{"a wrong checksum", "GET", "/v1/keys", unknown + "000000", audit.KeyInvalid, "", false, false},
	} {
		q := request{method: tc.method, path: tc.path, key: tc.key}
		if tc.method == "POST" {
			q.body = map[string]any{"name": "x", "scope": "admin", "level": "account"}
		}
		s.do(q)
		told := s.events.take()
		if len(told) != 1 {
			t.Errorf("%s: %d events", tc.name, len(told))
			continue
		}
		e := told[0]
		if e.Kind != audit.Authentication || e.Outcome != tc.outcome || e.KeyPrefix != tc.prefix || (e.KeyID != "") != tc.known || (e.AccountID != "") != tc.own {
			t.Errorf("%s: %+v", tc.name, e)
		}
		if e.Method != tc.method || e.Path == "" || e.ClientIP != "127.0.0.1" || e.RequestID == "" || !e.Time.Equal(s.clock.Now()) || apikey.PrefixOf(e.Path) != "" {
			t.Errorf("%s: %+v", tc.name, e)
		}
	}
	s.get("/v1/openapi.json")
	if told := s.events.take(); len(told) != 0 {
		t.Errorf("a call that needs no key was told: %+v", told)
	}
}
