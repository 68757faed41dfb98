package control_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: contract 3.1, what a creation may hold; a refused one leaves
// nothing.
func TestCreateKeyRefuses(t *testing.T) {
	h := newHarness(t)
	a, owner := h.account("acme")
	many := map[string]string{}
	for i := range 17 {
		many[strings.Repeat("n", i+1)] = ""
	}
	h.wantNoRecords(a.ID, func() {
		for field, list := range map[string][]control.KeyInput{
			"name":       {{Scope: "read"}, {Name: strings.Repeat("n", 256), Scope: "read"}},
			"scope":      {{Name: "k"}, {Name: "k", Scope: "root"}, {Name: "k", Scope: "read:"}, {Name: "k", Scope: "read:/a"}},
			"expires_at": {{Name: "k", Scope: "read", ExpiresAt: "soon"}, {Name: "k", Scope: "read", ExpiresAt: "2026-02-28"}, {Name: "k", Scope: "read", ExpiresAt: "2026-03-01T12:00:00Z"}},
			"gateway_id": {{Name: "k", Scope: "read", GatewayID: "gw_none"}, {Name: "k", Scope: "read", Level: "account", GatewayID: "gw_none"}},
			"rate_limit": {{Name: "k", Scope: "read", RateLimit: "0/s"}, {Name: "k", Scope: "read", RateLimit: "5"}, {Name: "k", Scope: "read", Level: "account", RateLimit: "5/s"}},
			"level":      {{Name: "k", Scope: "read", Level: "both"}},
			"owner":      {{Name: "k", Scope: "read", Owner: "é"}, {Name: "k", Scope: "read", Owner: strings.Repeat("o", 256)}},
			"metadata":   {{Name: "k", Scope: "read", Metadata: many}},
		} {
			for _, in := range list {
				_, err := h.CreateKey(ctx(), owner, in)
				h.wantCode(err, fault.ValidationFailed, field)
			}
		}
	})
}

// Guarantee: contract 3.1, the record of a new key, its event and its audit
// record, which know the digest alone.
func TestCreateKey(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	var k *control.NewKey
	before := h.records(caller.Account.ID)
	k = must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{
		Name: "mobile", Scope: "write:orders", ExpiresAt: "2026-03-31", GatewayID: g.ID, RateLimit: "60/minute",
		Owner: "cust_1", Metadata: map[string]string{"team": "app"},
	}))
	got := h.records(caller.Account.ID).since(before)
	if !strings.HasPrefix(k.Secret, "kg_") || apikey.DigestOf(k.Secret) != k.Digest || !strings.HasPrefix(k.Secret, k.Prefix) {
		t.Errorf("string %q does not fit prefix %q", k.Secret, k.Prefix)
	}
	if want := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC); !k.ExpiresAt.Equal(want) {
		t.Errorf("expires at %v; want the end of the day, %v", k.ExpiresAt, want)
	}
	stored := must[*apikey.Key](h)(h.Key(ctx(), caller, k.ID))
	if !reflect.DeepEqual(*stored, k.Key) {
		t.Errorf("stored %+v; answered %+v", stored, k.Key)
	}
	audits, events, changes := got.summary()
	want := []string{"key.create " + k.ID, "key.created " + k.ID, "key " + k.ID}
	if line := []string{strings.Join(audits, " "), strings.Join(events, " "), strings.Join(changes, " ")}; !reflect.DeepEqual(line, want) {
		t.Errorf("left %q; want %q", line, want)
	}
	r := got.audits[0]
	if r.ActorKeyID != caller.KeyID || r.KeyID != caller.KeyID || r.KeyPrefix != caller.KeyPrefix || r.GatewayID != g.ID ||
		r.Method != "POST" || r.Path != "/v1/test" || r.ClientIP != "192.0.2.1" || r.RequestID != "req_test" ||
		r.Kind != "management" || r.Outcome != "success" || !r.Time.Equal(h.clock.now()) {
		t.Errorf("audit record %+v", r)
	}
	if got := r.Diff["scope"]; got != [2]any{nil, "write:orders"} {
		t.Errorf("diff of scope %v", got)
	}
	data := dataOf(got.events[0])
	for name, want := range map[string]any{
		"key_id": k.ID, "key_prefix": k.Prefix, "name": "mobile", "scope": "write:orders", "level": "gateway",
		"owner": "cust_1", "gateway_id": g.ID, "expires_at": "2026-04-01T00:00:00Z",
	} {
		if data[name] != want {
			t.Errorf("event has %s %v; want %v", name, data[name], want)
		}
	}
	for _, b := range [][]byte{got.events[0].Payload} {
		if strings.Contains(string(b), k.Secret[len(k.Prefix):]) {
			t.Error("the key string stands in the event")
		}
	}
}

// Guarantee: contract 3, PATCH of a key: what changes, what null does, what
// is refused, in which order.
func TestUpdateKey(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{
		Name: "a", Scope: "read", ExpiresAt: "2026-03-02", RateLimit: "5/s", Owner: "o", Metadata: map[string]string{"a": "b"},
	}))
	patch := func(p control.KeyPatch, m control.Match) (got *apikey.Key, err error) {
		return h.UpdateKey(ctx(), caller, k.ID, p, m)
	}
	h.wantNoRecords(caller.Account.ID, func() {
		if got := must[*apikey.Key](h)(patch(control.KeyPatch{}, version(1))); got.Version != 1 {
			t.Errorf("an empty patch made version %d", got.Version)
		}
		must[*apikey.Key](h)(patch(control.KeyPatch{Name: value("a"), Owner: value("o"), RateLimit: value("5/s")}, nil))
	})
	h.wantRecords(caller.Account.ID, func() {
		got := must[*apikey.Key](h)(patch(control.KeyPatch{
			Name: value("b"), Owner: null[string](), RateLimit: null[string](), Metadata: null[map[string]string](), ExpiresAt: null[string](),
		}, version(1)))
		if got.Name != "b" || got.Owner != "" || !got.RateLimit.IsZero() || len(got.Metadata) != 0 || !got.ExpiresAt.IsZero() || got.Version != 2 {
			t.Errorf("patched %+v", got)
		}
	}, []string{"key.update " + k.ID}, nil, []string{"key " + k.ID})
	h.wantNoRecords(caller.Account.ID, func() {
		for field, p := range map[string]control.KeyPatch{
			"name":       {Name: null[string]()},
			"owner":      {Owner: value("\n")},
			"rate_limit": {RateLimit: value("")},
			"expires_at": {ExpiresAt: value("2026-03-01T12:00:00Z")},
		} {
			_, err := patch(p, never)
			h.wantCode(err, fault.ValidationFailed, field)
			_, err = h.UpdateKey(ctx(), caller, "key_none", p, nil)
			h.wantCode(err, fault.ValidationFailed, field)
		}
		_, err := patch(control.KeyPatch{}, version(1))
		h.wantCode(err, fault.PreconditionFailed, "")
		_, err = h.UpdateKey(ctx(), caller, caller.KeyID, control.KeyPatch{RateLimit: value("1/s")}, nil)
		h.wantCode(err, fault.ValidationFailed, "rate_limit")
	})
	must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, k.ID, nil))
	_, err := patch(control.KeyPatch{Name: value("c")}, version(2))
	h.wantCode(err, fault.PreconditionFailed, "") // before 409
	_, err = patch(control.KeyPatch{Name: value("c")}, nil)
	h.wantCode(err, fault.Conflict, "")
	expired := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "e", Scope: "read", ExpiresAt: "2026-03-01T12:00:01Z"}))
	h.clock.advance(time.Second)
	_, err = h.UpdateKey(ctx(), caller, expired.ID, control.KeyPatch{ExpiresAt: null[string]()}, nil)
	h.wantCode(err, fault.Conflict, "")
}

// Guarantee: DELETE revokes once, whatever comes after, and an expiry that was
// not told yet is told before.
func TestRevokeKey(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	acct := caller.Account.ID
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", ExpiresAt: "2026-03-01T12:00:10Z"}))
	late := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "l", Scope: "read", ExpiresAt: "2026-03-01T12:00:10Z"}))
	_, err := h.RevokeKey(ctx(), caller, k.ID, never)
	h.wantCode(err, fault.PreconditionFailed, "")
	h.wantRecords(acct, func() {
		got := must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, k.ID, version(1)))
		if got.State(h.clock.now()) != apikey.Revoked || got.Version != 2 || !got.RevokedAt.Equal(h.clock.now()) {
			t.Errorf("revoked %+v", got)
		}
	}, []string{"key.revoke " + k.ID}, []string{"key.revoked " + k.ID}, []string{"key " + k.ID})
	h.clock.advance(time.Minute)
	h.wantNoRecords(acct, func() {
		got := must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, k.ID, nil))
		if got.State(h.clock.now()) != apikey.Revoked || got.Version != 2 {
			t.Errorf("revoked again %+v", got)
		}
	})
	h.wantRecords(acct, func() { must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, late.ID, nil)) },
		[]string{"key.revoke " + late.ID}, []string{"key.expired " + late.ID, "key.revoked " + late.ID}, []string{"key " + late.ID})
	h.wantNoRecords(acct, func() { must[int](h)(h.NotifyExpired(ctx())) })
}

// Guarantee: key.expired once for each expiry, in any number of batches, and
// again for a new expiry; never before the time, nor for a revoked key.
func TestTellExpired(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	acct := caller.Account.ID
	const n = 450 // more than two batches
	for range n {
		must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", ExpiresAt: "2026-03-01T12:00:10Z"}))
	}
	moved := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", ExpiresAt: "2026-03-01T12:00:10Z"}))
	must[*apikey.Key](h)(h.UpdateKey(ctx(), caller, moved.ID, control.KeyPatch{ExpiresAt: value("2026-03-01T12:00:20Z")}, nil))
	h.clock.advance(10*time.Second - time.Microsecond)
	if got := must[int](h)(h.NotifyExpired(ctx())); got != 0 {
		t.Errorf("%d told before the time", got)
	}
	h.clock.advance(time.Microsecond)
	before := h.records(acct)
	if got := must[int](h)(h.NotifyExpired(ctx())); got != n {
		t.Errorf("%d told; want %d", got, n)
	}
	h.reopen()
	if got := must[int](h)(h.NotifyExpired(ctx())); got != 0 {
		t.Errorf("%d told again after a restart", got)
	}
	h.clock.advance(10 * time.Second)
	h.must(second(h.NotifyExpired(ctx())))
	got := h.records(acct).since(before)
	seen := map[string]bool{}
	for _, e := range got.events {
		seen[dataOf(e)["key_id"].(string)] = true
	}
	if len(got.events) != n+1 || len(seen) != n+1 || len(got.audits) != 0 {
		t.Errorf("%d events of %d keys and %d audit records; want %d and none", len(got.events), len(seen), len(got.audits), n+1)
	}
}

// Guarantee: contract 3.2, rotation.
func TestRotateKey(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	acct := caller.Account.ID
	g := h.gateway(caller)
	old := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{
		Name: "k", Scope: "read:orders", ExpiresAt: "2026-12-31", GatewayID: g.ID, RateLimit: "5/s", Owner: "o", Metadata: map[string]string{"a": "b"},
	}))
	for _, days := range []int{-1, 366} {
		_, err := h.RotateKey(ctx(), caller, old.ID, days, "", nil)
		h.wantCode(err, fault.ValidationFailed, "overlap_days")
	}
	_, err := h.RotateKey(ctx(), caller, old.ID, 1, "2026-03-01", nil)
	if fault.CodeOf(err) != "" { // through the day
		t.Errorf("expiry at the end of today: %v", err)
	}
	old = must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{
		Name: "k", Scope: "read:orders", ExpiresAt: "2026-12-31", GatewayID: g.ID, RateLimit: "5/s", Owner: "o", Metadata: map[string]string{"a": "b"},
	}))
	var made *control.NewKey
	before := h.records(acct)
	made = must[*control.NewKey](h)(h.RotateKey(ctx(), caller, old.ID, 7, "", nil))
	audits, events, _ := h.records(acct).since(before).summary()
	if !reflect.DeepEqual(audits, []string{"key.rotate " + old.ID}) ||
		!reflect.DeepEqual(events, []string{"key.rotated " + old.ID, "key.created " + made.ID}) {
		t.Errorf("left %q and %q", audits, events)
	}
	rotated := dataOf(h.records(acct).since(before).events[0])
	if !reflect.DeepEqual(rotated, map[string]any{"key_id": old.ID, "key_prefix": old.Prefix, "overlap_days": 7.0, "new_key_id": made.ID}) {
		t.Errorf("key.rotated has %v", rotated)
	}
	was := must[*apikey.Key](h)(h.Key(ctx(), caller, old.ID))
	ends := h.clock.now().Add(7 * 24 * time.Hour)
	if !was.ExpiresAt.Equal(ends) || was.RotatedTo != made.ID || was.State(h.clock.now()) != apikey.Active || was.Version != 2 {
		t.Errorf("old key %+v", was)
	}
	want := old.Key
	want.ID, want.Digest, want.Prefix, want.RotatedFrom = made.ID, made.Digest, made.Prefix, old.ID
	if !reflect.DeepEqual(made.Key, want) || made.Secret == old.Secret || !made.OverlapEndsAt.Equal(ends) {
		t.Errorf("new key %+v; want %+v", made.Key, want)
	}

	// The old key's end can only be brought forward.
	for _, end := range []struct {
		text string
		ok   bool
	}{{"2026-03-08T12:00:00.000001Z", false}, {"2026-03-08T12:00:00Z", true}, {"2026-03-07", true}} {
		_, err := h.UpdateKey(ctx(), caller, old.ID, control.KeyPatch{ExpiresAt: value(end.text)}, nil)
		if end.ok {
			h.must(err)
		} else {
			h.wantCode(err, fault.Conflict, "")
		}
	}
	_, err = h.UpdateKey(ctx(), caller, old.ID, control.KeyPatch{ExpiresAt: null[string]()}, nil)
	h.wantCode(err, fault.Conflict, "")
	_, err = h.RotateKey(ctx(), caller, old.ID, 1, "", nil)
	h.wantCode(err, fault.Conflict, "")

	// One bucket: a change of either's limit is of both.
	for _, id := range []string{old.ID, made.ID} {
		limit := "9/s"
		if id == made.ID {
			limit = "10/s"
		}
		h.wantRecords(acct, func() {
			must[*apikey.Key](h)(h.UpdateKey(ctx(), caller, id, control.KeyPatch{RateLimit: value(limit)}, nil))
		},
			[]string{"key.update " + id, "key.update " + other(id, old.ID, made.ID)}, nil,
			[]string{"key " + id, "key " + other(id, old.ID, made.ID)})
		for _, k := range []string{old.ID, made.ID} {
			if got := must[*apikey.Key](h)(h.Key(ctx(), caller, k)); got.RateLimit != rate(limit) || got.BucketID != old.ID {
				t.Errorf("key %s has %v of bucket %s", k, got.RateLimit, got.BucketID)
			}
		}
	}

	// Revoking either leaves the other alone.
	must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, made.ID, nil))
	if got := must[*apikey.Key](h)(h.Key(ctx(), caller, old.ID)); got.State(h.clock.now()) != apikey.Active {
		t.Errorf("the old key is %s after the new one was revoked", got.State(h.clock.now()))
	}
	_, err = h.RotateKey(ctx(), caller, made.ID, 1, "", nil)
	h.wantCode(err, fault.Conflict, "")
}

// Guarantee: without an overlap the old key ends in the call, and its expiry
// is told once.
func TestRotateWithoutOverlap(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	old := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read"}))
	before := h.records(caller.Account.ID)
	made := must[*control.NewKey](h)(h.RotateKey(ctx(), caller, old.ID, 0, "", nil))
	if !made.ExpiresAt.IsZero() || !made.OverlapEndsAt.Equal(h.clock.now()) {
		t.Errorf("new key %+v", made)
	}
	if got := must[*apikey.Key](h)(h.Key(ctx(), caller, old.ID)); got.State(h.clock.now()) != apikey.Expired {
		t.Errorf("old key is %s", got.State(h.clock.now()))
	}
	h.must(second(h.NotifyExpired(ctx())))
	_, events, _ := h.records(caller.Account.ID).since(before).summary()
	if want := []string{"key.rotated " + old.ID, "key.created " + made.ID, "key.expired " + old.ID}; !reflect.DeepEqual(events, want) {
		t.Errorf("events %q; want %q", events, want)
	}
	// An own expiry that is sooner than the overlap's end stays.
	soon := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", ExpiresAt: "2026-03-02"}))
	made = must[*control.NewKey](h)(h.RotateKey(ctx(), caller, soon.ID, 30, "2027-01-01T00:00:00Z", nil))
	if !made.OverlapEndsAt.Equal(soon.ExpiresAt) || !made.ExpiresAt.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("overlap ends %v, new key %v", made.OverlapEndsAt, made.ExpiresAt)
	}
}

// Guarantee: contract 3, verify: the data plane's answer, without charge or
// trace.
func TestVerifyKey(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "read")
	_, owner := h.account("acme")
	g, elsewhere := h.gateway(owner), h.gateway(owner)
	make := func(in control.KeyInput) *control.NewKey {
		in.Name = "k"
		return must[*control.NewKey](h)(h.CreateKey(ctx(), owner, in))
	}
	bound := make(control.KeyInput{Scope: "read:orders", GatewayID: g.ID})
	encoded := make(control.KeyInput{Scope: "read:%6frders"})
	writer := make(control.KeyInput{Scope: "write"})
	revoked := make(control.KeyInput{Scope: "admin", ExpiresAt: "2026-03-01T12:00:01Z"})
	expired := make(control.KeyInput{Scope: "admin", ExpiresAt: "2026-03-01T12:00:01Z"})
	admin := make(control.KeyInput{Scope: "write:keys", Level: "account"})
	must[*apikey.Key](h)(h.RevokeKey(ctx(), owner, revoked.ID, nil))
	h.clock.advance(time.Second)
	typo := writer.Secret[:len(writer.Secret)-1] + "_"
	stranger := must[string](h)(apikey.Generate(apikey.GatewayLevel, zeros{}))
	h.wantNoRecords(caller.Account.ID, func() {
		for _, tc := range []struct {
			secret, gateway, method, path, code string
			state                               apikey.State
		}{
			{bound.Secret, "", "", "", "", apikey.Active},
			{bound.Secret, g.ID, "GET", "/orders/1?x=/y", "", apikey.Active},
			{bound.Secret, g.ID, "", "/%6Frders", "", apikey.Active},
			{encoded.Secret, g.ID, "", "/orders/1", "", apikey.Active},
			{encoded.Secret, g.ID, "", "/orders/caf%C3%A9", "", apikey.Active},
			{bound.Secret, elsewhere.ID, "", "", "scope_insufficient", apikey.Active},
			{bound.Secret, g.ID, "POST", "", "scope_insufficient", apikey.Active},
			{bound.Secret, g.ID, "", "/orders-old", "scope_insufficient", apikey.Active},
			{writer.Secret, elsewhere.ID, "PATCH", "/x", "", apikey.Active},
			{writer.Secret, "", "DELETE", "", "scope_insufficient", apikey.Active},
			{revoked.Secret, "", "", "", "key_invalid", apikey.Revoked},
			{expired.Secret, "", "", "", "key_expired", apikey.Expired},
			{admin.Secret, "", "", "", "", apikey.Active},
			{admin.Secret, g.ID, "", "", "key_invalid", apikey.Active},
			{admin.Secret, "", "POST", "/v1/keys/x", "", apikey.Active},
			{admin.Secret, "", "POST", "/v1/gateways", "scope_insufficient", apikey.Active},
			{typo, "", "", "", "key_invalid", ""},
			{stranger, "", "", "", "key_invalid", ""},
			{"nonsense", "", "", "", "key_invalid", ""},
		} {
			v := must[*control.Verification](h)(h.VerifyKey(ctx(), caller, tc.secret, tc.gateway, tc.method, tc.path))
			if v.Code != tc.code || v.Valid != (tc.code == "") || v.State != tc.state || (v.Key == nil) != (tc.state == "") {
				t.Errorf("%+v gives %+v", tc, v)
			}
		}
		for field, args := range map[string][4]string{
			"key": {"", "", "", ""}, "gateway_id": {"x", "gw_x", "", ""}, "method": {"x", "", "get", ""}, "path": {"x", "", "", "orders"},
		} {
			_, err := h.VerifyKey(ctx(), caller, args[0], args[1], args[2], args[3])
			h.wantCode(err, fault.ValidationFailed, field)
		}
		for _, path := range []string{"/orders/../admin", "/orders/%2e%2e/admin", "/orders//1", "/orders%2f1", "/orders/%00", "/orders/%zz", "/orders#1", `/orders\1`} {
			_, err := h.VerifyKey(ctx(), caller, bound.Secret, g.ID, "GET", path)
			h.wantCode(err, fault.ValidationFailed, "path")
		}
	})
}

// zeros is a source of randomness without any.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func other(id, a, b string) string {
	if id == a {
		return b
	}
	return a
}
