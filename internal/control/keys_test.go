package control_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: contract 3.1, every field of a new key is validated, and a rejected creation
// writes no record.
func TestInvalidKeysAreRejected(t *testing.T) {
	h := newHarness(t)
	a, owner := h.account("acme")
	many := map[string]string{}
	for i := range 17 {
		many[strings.Repeat("n", i+1)] = ""
	}
	h.wantNoRecords(a.ID, func() {
		for field, list := range map[string][]control.KeyInput{
			"name":        {{Scope: "read"}, {Name: strings.Repeat("n", 256), Scope: "read"}, {Name: "  ", Scope: "read"}, {Name: "k\u202e", Scope: "read"}},
			"scope":       {{Name: "k"}, {Name: "k", Scope: "root"}, {Name: "k", Scope: "read:"}, {Name: "k", Scope: "read:/a"}, {Name: "k", Scope: "read,write"}, {Name: "k", Scope: "read read"}},
			"expires_at":  {{Name: "k", Scope: "read", ExpiresAt: "soon"}, {Name: "k", Scope: "read", ExpiresAt: "2026-02-28"}, {Name: "k", Scope: "read", ExpiresAt: "2026-03-01T12:00:00Z"}},
			"gateway_id":  {{Name: "k", Scope: "read", GatewayID: "gw_none"}, {Name: "k", Scope: "read", Level: "account", GatewayID: "gw_none"}},
			"rate_limit":  {{Name: "k", Scope: "read", RateLimit: keyRate("0/s")}, {Name: "k", Scope: "read", RateLimit: keyRate("5")}, {Name: "k", Scope: "read", RateLimit: keyRate(`{"daily":"5/day"}`)}, {Name: "k", Scope: "read", RateLimit: control.KeyLimitInput{Object: &control.KeyLimitObject{}}}, {Name: "k", Scope: "read", Level: "account", RateLimit: keyRate("5/s")}},
			"concurrency": {{Name: "k", Scope: "read", Concurrency: new(int64(0))}, {Name: "k", Scope: "read", Concurrency: new(int64(-1))}, {Name: "k", Scope: "read", Concurrency: new(int64(1_000_001))}, {Name: "k", Scope: "read", Level: "account", Concurrency: new(int64(5))}},
			"level":       {{Name: "k", Scope: "read", Level: "both"}},
			"owner":       {{Name: "k", Scope: "read", Owner: "é"}, {Name: "k", Scope: "read", Owner: strings.Repeat("o", 256)}},
			"metadata":    {{Name: "k", Scope: "read", Metadata: many}},
		} {
			for _, in := range list {
				_, err := h.CreateKey(ctx(), owner, in)
				h.wantCode(err, fault.ValidationFailed, field)
			}
		}
	})
}

// Guarantee: contract 3.1, a new key is stored as returned, with one event and one audit
// record. The event does not have the key string.
func TestCreateKey(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	h.owner(caller, control.OwnerInput{ExternalID: "cust_1"})
	var k *control.NewKey
	before := h.records(caller.Account.ID)
	k = must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{
		Name: "mobile", Scope: "write:orders read", ExpiresAt: "2026-03-31", GatewayID: g.ID, RateLimit: keyRate("60/minute"),
		Owner: "cust_1", Metadata: map[string]string{"team": "app"},
	}))
	got := h.records(caller.Account.ID).since(before)
	if !strings.HasPrefix(k.Secret, "kg_") || apikey.DigestOf(k.Secret) != k.Digest || !strings.HasPrefix(k.Secret, k.Prefix) {
		t.Errorf("got key string %q with prefix %q and another digest or prefix; want them to match", k.Secret, k.Prefix)
	}
	if want := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC); !k.ExpiresAt.Equal(want) {
		t.Errorf("got expiry %v; want the end of the day, %v", k.ExpiresAt, want)
	}
	stored := must[*apikey.Key](h)(h.Key(ctx(), caller, k.ID))
	if !reflect.DeepEqual(*stored, k.Key) {
		t.Errorf("got stored key %+v; want the returned one, %+v", stored, k.Key)
	}
	audits, events, changes := got.summary()
	want := []string{"key.create " + k.ID, "key.created " + k.ID, "key " + k.ID}
	if line := []string{strings.Join(audits, " "), strings.Join(events, " "), strings.Join(changes, " ")}; !reflect.DeepEqual(line, want) {
		t.Errorf("got records %q; want %q", line, want)
	}
	r := got.audits[0]
	if r.ActorKeyID != caller.KeyID || r.KeyID != caller.KeyID || r.KeyPrefix != caller.KeyPrefix || r.GatewayID != g.ID ||
		r.Method != "POST" || r.Path != "/v1/test" || r.ClientIP != "192.0.2.1" || r.RequestID != "req_test" ||
		r.Kind != "management" || r.Outcome != "success" || !r.Time.Equal(h.clock.now()) {
		t.Errorf("got audit record %+v; want the caller's key, address, method, path and request, and the gateway", r)
	}
	if got := r.Diff["scope"]; got != [2]any{nil, "write:orders read"} {
		t.Errorf("got scope %v in the diff; want [nil write:orders read]", got)
	}
	data := dataOf(got.events[0])
	for name, want := range map[string]any{
		"key_id": k.ID, "key_prefix": k.Prefix, "name": "mobile", "scope": "write:orders read", "level": "gateway",
		"owner": "cust_1", "gateway_id": g.ID, "expires_at": "2026-04-01T00:00:00Z",
	} {
		if data[name] != want {
			t.Errorf("got %s %v in the event; want %v", name, data[name], want)
		}
	}
	if strings.Contains(string(got.events[0].Payload), k.Secret[len(k.Prefix):]) {
		t.Error("the event has the key string; want its prefix only")
	}
}

// Guarantee: contract 3, PATCH of a key changes the fields that are present and clears those
// that are null; 422 comes before 404 and 412, and 412 before 409.
func TestUpdateKey(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{
		Name: "a", Scope: "read", ExpiresAt: "2026-03-02", RateLimit: keyRate("5/s"), Owner: "o", Metadata: map[string]string{"a": "b"},
	}))
	patch := func(p control.KeyPatch, m control.Match) (got *apikey.Key, err error) {
		return h.UpdateKey(ctx(), caller, k.ID, p, m)
	}
	h.wantNoRecords(caller.Account.ID, func() {
		if got := must[*apikey.Key](h)(patch(control.KeyPatch{}, version(1))); got.Version != 1 {
			t.Errorf("got version %d after an empty patch; want 1", got.Version)
		}
		must[*apikey.Key](h)(patch(control.KeyPatch{Name: value("a"), Owner: value("o"), RateLimit: value(keyRate("5/s"))}, nil))
	})
	h.wantRecords(caller.Account.ID, func() {
		got := must[*apikey.Key](h)(patch(control.KeyPatch{
			Name: value("b"), Owner: null[string](), RateLimit: null[control.KeyLimitInput](), Metadata: null[map[string]string](), ExpiresAt: null[string](),
		}, version(1)))
		if got.Name != "b" || got.Owner != "" || !got.RateLimit.IsZero() || len(got.Metadata) != 0 || !got.ExpiresAt.IsZero() || got.Version != 2 {
			t.Errorf("got %+v; want the name b, version 2 and the other fields cleared", got)
		}
	}, []string{"key.update " + k.ID}, nil, []string{"key " + k.ID})
	h.wantNoRecords(caller.Account.ID, func() {
		for field, p := range map[string]control.KeyPatch{
			"name":        {Name: null[string]()},
			"owner":       {Owner: value("\n")},
			"rate_limit":  {RateLimit: value(keyRate(""))},
			"concurrency": {Concurrency: value(int64(0))},
			"expires_at":  {ExpiresAt: value("2026-03-01T12:00:00Z")},
		} {
			_, err := patch(p, never)
			h.wantCode(err, fault.ValidationFailed, field)
			_, err = h.UpdateKey(ctx(), caller, "key_none", p, nil)
			h.wantCode(err, fault.ValidationFailed, field)
		}
		_, err := patch(control.KeyPatch{}, version(1))
		h.wantCode(err, fault.PreconditionFailed, "")
		_, err = h.UpdateKey(ctx(), caller, caller.KeyID, control.KeyPatch{RateLimit: value(keyRate("1/s"))}, nil)
		h.wantCode(err, fault.ValidationFailed, "rate_limit")
		_, err = h.UpdateKey(ctx(), caller, caller.KeyID, control.KeyPatch{Concurrency: value(int64(1))}, nil)
		h.wantCode(err, fault.ValidationFailed, "concurrency")
	})
	must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, k.ID, nil))
	_, err := patch(control.KeyPatch{Name: value("c")}, version(2))
	h.wantCode(err, fault.PreconditionFailed, "") // 412 comes before 409
	_, err = patch(control.KeyPatch{Name: value("c")}, nil)
	h.wantCode(err, fault.Conflict, "")
	expired := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "e", Scope: "read", ExpiresAt: "2026-03-01T12:00:01Z"}))
	h.clock.advance(time.Second)
	_, err = h.UpdateKey(ctx(), caller, expired.ID, control.KeyPatch{ExpiresAt: null[string]()}, nil)
	h.wantCode(err, fault.Conflict, "")
}

// Guarantee: revoking a key is idempotent, and final. The event of an expiry that had not been sent
// yet comes before the event of the revocation.
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
			t.Errorf("got %+v; want it revoked now, of version 2", got)
		}
	}, []string{"key.revoke " + k.ID}, []string{"key.revoked " + k.ID}, []string{"key " + k.ID})
	h.clock.advance(time.Minute)
	h.wantNoRecords(acct, func() {
		got := must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, k.ID, nil))
		if got.State(h.clock.now()) != apikey.Revoked || got.Version != 2 {
			t.Errorf("got %+v after a second call; want it revoked, of version 2", got)
		}
	})
	h.wantRecords(acct, func() { must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, late.ID, nil)) },
		[]string{"key.revoke " + late.ID}, []string{"key.expired " + late.ID, "key.revoked " + late.ID}, []string{"key " + late.ID})
	h.wantNoRecords(acct, func() { must[int](h)(h.NotifyExpired(ctx())) })
}

// Guarantee: each key that expires has one key.expired event and no audit record. The event is
// never before its time, in any number of batches and through a restart.
func TestNotifyExpired(t *testing.T) {
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
		t.Errorf("got %d events before the expiry; want 0", got)
	}
	h.clock.advance(time.Microsecond)
	before := h.records(acct)
	if got := must[int](h)(h.NotifyExpired(ctx())); got != n {
		t.Errorf("got %d events; want %d", got, n)
	}
	h.reopen()
	if got := must[int](h)(h.NotifyExpired(ctx())); got != 0 {
		t.Errorf("got %d events after a restart; want 0", got)
	}
	h.clock.advance(10 * time.Second)
	h.must(second(h.NotifyExpired(ctx())))
	got := h.records(acct).since(before)
	seen := map[string]bool{}
	for _, e := range got.events {
		seen[dataOf(e)["key_id"].(string)] = true
	}
	if len(got.events) != n+1 || len(seen) != n+1 || len(got.audits) != 0 {
		t.Errorf("got %d events of %d keys and %d audit records; want %d events, each of another key, and no audit record", len(got.events), len(seen), len(got.audits), n+1)
	}
}

// rotation is a key that was rotated with an overlap of seven days.
type rotation struct {
	*harness
	caller *control.Actor
	old    *control.NewKey // as created
	made   *control.NewKey
	ends   time.Time // the end of the overlap

	written records // by the rotation
}

// rotated creates a key with every setting and rotates it.
func rotated(t *testing.T) *rotation {
	t.Helper()
	h := newHarness(t)
	r := &rotation{harness: h, caller: h.caller("acme", "admin")}
	r.old = h.fullKey(r.caller)
	before := h.records(r.caller.Account.ID)
	r.made = must[*control.NewKey](h)(h.RotateKey(ctx(), r.caller, r.old.ID, 7, "", nil))
	r.written = h.records(r.caller.Account.ID).since(before)
	r.ends = h.clock.now().Add(7 * 24 * time.Hour)
	return r
}

// fullKey creates a key with every setting.
func (h *harness) fullKey(c *control.Actor) *control.NewKey {
	h.tb.Helper()
	return must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{
		Name: "k", Scope: "read:orders", ExpiresAt: "2026-12-31", GatewayID: h.gateway(c).ID, RateLimit: keyRate("5/s"), Owner: "o", Metadata: map[string]string{"a": "b"},
	}))
}

func (h *harness) key(c *control.Actor, id string) *apikey.Key {
	h.tb.Helper()
	return must[*apikey.Key](h)(h.Key(ctx(), c, id))
}

// Guarantee: contract 3.2, a rotation creates a key with the settings of the old one, which
// then expires at the end of the overlap.
func TestRotateKey(t *testing.T) {
	r := rotated(t)
	t.Run("the old key is active until the overlap ends", func(t *testing.T) {
		got := r.key(r.caller, r.old.ID)
		if !got.ExpiresAt.Equal(r.ends) || got.RotatedTo != r.made.ID || got.State(r.clock.now()) != apikey.Active || got.Version != 2 {
			t.Errorf("got old key %+v; want it active until %v, rotated to %s, of version 2", got, r.ends, r.made.ID)
		}
	})
	t.Run("the new key has the settings of the old one", func(t *testing.T) {
		want := r.old.Key
		want.ID, want.Digest, want.Prefix, want.RotatedFrom = r.made.ID, r.made.Digest, r.made.Prefix, r.old.ID
		if !reflect.DeepEqual(r.made.Key, want) {
			t.Errorf("got new key %+v; want %+v", r.made.Key, want)
		}
		if r.made.Secret == r.old.Secret {
			t.Error("the new key has the string of the old one; want another")
		}
		if !r.made.OverlapEndsAt.Equal(r.ends) {
			t.Errorf("got end of the overlap %v; want %v", r.made.OverlapEndsAt, r.ends)
		}
	})
	t.Run("it writes one audit record and two events", func(t *testing.T) {
		audits, events, _ := r.written.summary()
		if want := []string{"key.rotate " + r.old.ID}; !slices.Equal(audits, want) {
			t.Errorf("got audit records %q; want %q", audits, want)
		}
		if want := []string{"key.rotated " + r.old.ID, "key.created " + r.made.ID}; !slices.Equal(events, want) {
			t.Fatalf("got events %q; want %q", events, want)
		}
		want := map[string]any{"key_id": r.old.ID, "key_prefix": r.old.Prefix, "overlap_days": 7.0, "new_key_id": r.made.ID}
		if got := dataOf(r.written.events[0]); !reflect.DeepEqual(got, want) {
			t.Errorf("got data %v of key.rotated; want %v", got, want)
		}
	})
	t.Run("a key is rotated only once", func(t *testing.T) {
		_, err := r.RotateKey(ctx(), r.caller, r.old.ID, 1, "", nil)
		r.wantCode(err, fault.Conflict, "")
	})
}

// Guarantee: the overlap is 0 to 365 days, and the new key may expire at the end of today.
func TestRotateKeyChecksItsInput(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	old := h.fullKey(caller)
	for _, days := range []int{-1, 366} {
		_, err := h.RotateKey(ctx(), caller, old.ID, days, "", nil)
		h.wantCode(err, fault.ValidationFailed, "overlap_days")
	}
	if _, err := h.RotateKey(ctx(), caller, old.ID, 1, "2026-03-01", nil); err != nil {
		t.Errorf("got %v for an expiry at the end of today; want no error", err)
	}
}

// Guarantee: the expiry of a rotated key can be brought forward, and never moved back or
// removed.
func TestOverlapCanOnlyBeShortened(t *testing.T) {
	r := rotated(t)
	update := func(p control.KeyPatch) error { return second(r.UpdateKey(ctx(), r.caller, r.old.ID, p, nil)) }
	r.wantCode(update(control.KeyPatch{ExpiresAt: value("2026-03-08T12:00:00.000001Z")}), fault.Conflict, "")
	for _, end := range []string{"2026-03-08T12:00:00Z", "2026-03-07"} {
		r.must(update(control.KeyPatch{ExpiresAt: value(end)}))
	}
	r.wantCode(update(control.KeyPatch{ExpiresAt: null[string]()}), fault.Conflict, "")
}

// Guarantee: both keys of a rotation use one bucket, so a change of the rate limit of one
// changes both.
func TestRotatedKeysShareTheirRateLimit(t *testing.T) {
	r := rotated(t)
	for _, tc := range []struct{ name, id, other, limit string }{
		{"through the old key", r.old.ID, r.made.ID, "9/s"},
		{"through the new key", r.made.ID, r.old.ID, "10/s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r.wantRecords(r.caller.Account.ID, func() {
				must[*apikey.Key](r.harness)(r.UpdateKey(ctx(), r.caller, tc.id, control.KeyPatch{RateLimit: value(keyRate(tc.limit))}, nil))
			}, []string{"key.update " + tc.id, "key.update " + tc.other}, nil, []string{"key " + tc.id, "key " + tc.other})
			for _, id := range []string{tc.id, tc.other} {
				if got := r.key(r.caller, id); got.RateLimit.String() != tc.limit || got.BucketID != r.old.ID {
					t.Errorf("got limit %v and bucket %s of key %s; want %s and %s", got.RateLimit, got.BucketID, id, tc.limit, r.old.ID)
				}
			}
		})
	}
}

// Guarantee: plans.md, 6: the keys of a rotation have one concurrency, so that a caller who switches over does not get more
// than before; null removes it. While there is one, the changes are such that older versions cannot miss it.
func TestRotatedKeysShareTheirConcurrency(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	acct := caller.Account.ID
	var old, made *control.NewKey
	before := h.records(acct)
	old = must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", RateLimit: keyRate("9/s"), Concurrency: new(int64(5))}))
	made = must[*control.NewKey](h)(h.RotateKey(ctx(), caller, old.ID, 7, "", nil))
	wrote := h.records(acct).since(before)
	if _, _, changes := wrote.summary(); !slices.Equal(changes, []string{"concurrency " + old.ID, "concurrency " + made.ID, "concurrency " + old.ID}) {
		t.Errorf("got the changes %q; want those of a key with a concurrency", changes)
	}
	if got := wrote.audits[0].Diff["concurrency"]; fmt.Sprint(got) != "[<nil> 5]" {
		t.Errorf("got the diff %v of the new key; want [<nil> 5]", got)
	}
	if made.Concurrency != 5 {
		t.Errorf("the new key has the concurrency %d; want 5", made.Concurrency)
	}
	for _, tc := range []struct {
		id, other, change string
		to                control.Optional[int64]
		want              int64
	}{
		{old.ID, made.ID, "concurrency ", value(int64(7)), 7},
		{made.ID, old.ID, "concurrency ", value(int64(ratelimit.MaxConcurrency)), ratelimit.MaxConcurrency},
		{made.ID, old.ID, "key ", null[int64](), 0},
	} {
		h.wantRecords(acct, func() {
			must[*apikey.Key](h)(h.UpdateKey(ctx(), caller, tc.id, control.KeyPatch{Concurrency: tc.to}, nil))
		}, []string{"key.update " + tc.id, "key.update " + tc.other}, nil, []string{tc.change + tc.id, tc.change + tc.other})
		for _, id := range []string{tc.id, tc.other} {
			if got := must[*apikey.Key](h)(h.Key(ctx(), caller, id)); got.Concurrency != tc.want || got.RateLimit.String() != "9/s" {
				t.Errorf("key %s has the concurrency %d and the limit %v; want %d and 9/s", id, got.Concurrency, got.RateLimit, tc.want)
			}
		}
	}
}

// Guarantee: revoking the new key of a rotation does not revoke the old one, and a revoked
// key cannot be rotated.
func TestRevokingTheNewKeyLeavesTheOldOne(t *testing.T) {
	r := rotated(t)
	must[*apikey.Key](r.harness)(r.RevokeKey(ctx(), r.caller, r.made.ID, nil))
	if got := r.key(r.caller, r.old.ID).State(r.clock.now()); got != apikey.Active {
		t.Errorf("got state %s of the old key; want active", got)
	}
	_, err := r.RotateKey(ctx(), r.caller, r.made.ID, 1, "", nil)
	r.wantCode(err, fault.Conflict, "")
}

// Guarantee: without an overlap the old key expires in the call, with one key.expired event.
// A key that expires before the overlap ends keeps its expiry.
func TestRotateWithoutOverlap(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	old := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read"}))
	before := h.records(caller.Account.ID)
	made := must[*control.NewKey](h)(h.RotateKey(ctx(), caller, old.ID, 0, "", nil))
	if !made.ExpiresAt.IsZero() || !made.OverlapEndsAt.Equal(h.clock.now()) {
		t.Errorf("got new key %+v; want no expiry, and an overlap that ends now", made)
	}
	if got := must[*apikey.Key](h)(h.Key(ctx(), caller, old.ID)); got.State(h.clock.now()) != apikey.Expired {
		t.Errorf("got state %s of the old key; want expired", got.State(h.clock.now()))
	}
	for _, state := range []apikey.State{apikey.Active, apikey.Expired} {
		h.clock.advance(-3 * time.Second)
		list := must[[]apikey.Key](h)(h.Keys(ctx(), caller, control.KeyFilter{State: state}, control.Page{Limit: 100}))
		if got := slices.ContainsFunc(list, func(k apikey.Key) bool { return k.ID == old.ID }); got != (state == apikey.Expired) {
			t.Errorf("by a clock that is behind, the old key is among the %s keys: %v", state, got)
		}
		h.clock.advance(3 * time.Second)
	}
	h.clock.advance(-3 * time.Second) // as another node's clock might be
	if v := must[*control.Verification](h)(h.VerifyKey(ctx(), caller, old.Secret, "", "GET", "/v1/keys")); v.Valid || v.Code != string(fault.KeyExpired) {
		t.Errorf("by a clock that is behind, the old key is %+v; want %s", v, fault.KeyExpired)
	}
	h.clock.advance(3 * time.Second)
	h.must(second(h.NotifyExpired(ctx())))
	_, events, _ := h.records(caller.Account.ID).since(before).summary()
	if want := []string{"key.rotated " + old.ID, "key.created " + made.ID, "key.expired " + old.ID}; !reflect.DeepEqual(events, want) {
		t.Errorf("got events %q; want %q", events, want)
	}
	// A key that expires before the end of the overlap keeps its expiry.
	soon := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", ExpiresAt: "2026-03-02"}))
	made = must[*control.NewKey](h)(h.RotateKey(ctx(), caller, soon.ID, 30, "2027-01-01T00:00:00Z", nil))
	if !made.OverlapEndsAt.Equal(soon.ExpiresAt) || !made.ExpiresAt.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("got end of the overlap %v and expiry %v; want %v and the start of 2027", made.OverlapEndsAt, made.ExpiresAt, soon.ExpiresAt)
	}
}

// verified has keys to verify: active keys, a revoked key and an expired key.
type verified struct {
	*harness
	caller        *control.Actor // with the scope read
	g, elsewhere  *gateway.Gateway
	bound         *control.NewKey // restricted to g
	encoded       *control.NewKey // with an escape in its scope
	writer, admin *control.NewKey
	several       *control.NewKey // with more than one scope
	revoked       *control.NewKey
	expired       *control.NewKey
}

func newVerified(t *testing.T) *verified {
	t.Helper()
	h := newHarness(t)
	v := &verified{harness: h, caller: h.caller("acme", "read")}
	_, owner := h.account("acme")
	v.g, v.elsewhere = h.gateway(owner), h.gateway(owner)
	create := func(in control.KeyInput) *control.NewKey {
		in.Name = "k"
		return must[*control.NewKey](h)(h.CreateKey(ctx(), owner, in))
	}
	v.bound = create(control.KeyInput{Scope: "read:orders", GatewayID: v.g.ID})
	v.encoded = create(control.KeyInput{Scope: "read:%6frders"})
	v.writer = create(control.KeyInput{Scope: "write"})
	v.several = create(control.KeyInput{Scope: "read:orders write:%63ustomers"})
	v.revoked = create(control.KeyInput{Scope: "admin", ExpiresAt: "2026-03-01T12:00:01Z"})
	v.expired = create(control.KeyInput{Scope: "admin", ExpiresAt: "2026-03-01T12:00:01Z"})
	v.admin = create(control.KeyInput{Scope: "write:keys", Level: "account"})
	must[*apikey.Key](h)(h.RevokeKey(ctx(), owner, v.revoked.ID, nil))
	h.clock.advance(time.Second)
	return v
}

// Guarantee: contract 3, verification returns what the data plane would decide, and writes
// no record.
func TestVerifyKey(t *testing.T) {
	v := newVerified(t)
	typo := v.writer.Secret[:len(v.writer.Secret)-1] + "_"
	stranger := must[string](v.harness)(apikey.Generate(apikey.GatewayLevel, zeros{}))
	for _, tc := range []struct {
		name, secret, gateway, method, path, code string

		state apikey.State // "" if the key is unknown
	}{
		{"no gateway", v.bound.Secret, "", "", "", "", apikey.Active},
		{"a path within the scope", v.bound.Secret, v.g.ID, "GET", "/orders/1?x=/y", "", apikey.Active},
		{"an escaped path", v.bound.Secret, v.g.ID, "", "/%6Frders", "", apikey.Active},
		{"an escaped scope", v.encoded.Secret, v.g.ID, "", "/orders/1", "", apikey.Active},
		{"a path that must be escaped", v.encoded.Secret, v.g.ID, "", "/orders/caf%C3%A9", "", apikey.Active},
		{"another gateway", v.bound.Secret, v.elsewhere.ID, "", "", "scope_insufficient", apikey.Active},
		{"a method outside of the scope", v.bound.Secret, v.g.ID, "POST", "", "scope_insufficient", apikey.Active},
		{"a path outside of the scope", v.bound.Secret, v.g.ID, "", "/orders-old", "scope_insufficient", apikey.Active},
		{"any gateway", v.writer.Secret, v.elsewhere.ID, "PATCH", "/x", "", apikey.Active},
		{"the second scope", v.several.Secret, "", "POST", "/customers/1", "", apikey.Active},
		{"the word of one scope and the resource of another", v.several.Secret, "", "POST", "/orders", "scope_insufficient", apikey.Active},
		{"the word of some scope", v.several.Secret, "", "POST", "", "", apikey.Active},
		{"the resource of no scope", v.several.Secret, "", "", "/items", "scope_insufficient", apikey.Active},
		{"DELETE with the scope write", v.writer.Secret, "", "DELETE", "", "scope_insufficient", apikey.Active},
		{"a revoked key", v.revoked.Secret, "", "", "", "key_invalid", apikey.Revoked},
		{"an expired key", v.expired.Secret, "", "", "", "key_expired", apikey.Expired},
		{"an account-level key", v.admin.Secret, "", "", "", "", apikey.Active},
		{"an account-level key at a gateway", v.admin.Secret, v.g.ID, "", "", "key_invalid", apikey.Active},
		{"an account-level key within its scope", v.admin.Secret, "", "POST", "/v1/keys/x", "", apikey.Active},
		{"an account-level key outside of its scope", v.admin.Secret, "", "POST", "/v1/gateways", "scope_insufficient", apikey.Active},
		{"a typo", typo, "", "", "", "key_invalid", ""},
		{"an unknown key", stranger, "", "", "", "key_invalid", ""},
		{"a text that is not a key", "nonsense", "", "", "", "key_invalid", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v.wantNoRecords(v.caller.Account.ID, func() {
				got := must[*control.Verification](v.harness)(v.VerifyKey(ctx(), v.caller, tc.secret, tc.gateway, tc.method, tc.path))
				if wantValid := tc.code == ""; got.Code != tc.code || got.Valid != wantValid || got.State != tc.state {
					t.Errorf("got code %q, valid %t, state %q; want %q, %t, %q", got.Code, got.Valid, got.State, tc.code, wantValid, tc.state)
				}
				if tc.state == "" && got.Key != nil {
					t.Errorf("got key %+v; want none", got.Key)
				}
				if tc.state != "" && got.Key == nil {
					t.Error("got no key; want it")
				}
			})
		})
	}
}

// Guarantee: a verification with invalid input is rejected with the name of the field, and
// writes no record.
func TestVerifyKeyChecksItsInput(t *testing.T) {
	v := newVerified(t)
	v.wantNoRecords(v.caller.Account.ID, func() {
		for field, args := range map[string][4]string{
			"key": {"", "", "", ""}, "gateway_id": {"x", "gw_x", "", ""}, "method": {"x", "", "get", ""}, "path": {"x", "", "", "orders"},
		} {
			_, err := v.VerifyKey(ctx(), v.caller, args[0], args[1], args[2], args[3])
			v.wantCode(err, fault.ValidationFailed, field)
		}
		for _, path := range []string{"/orders/../admin", "/orders/%2e%2e/admin", "/orders//1", "/orders%2f1", "/orders/%00", "/orders/%zz", "/orders#1", `/orders\1`} {
			_, err := v.VerifyKey(ctx(), v.caller, v.bound.Secret, v.g.ID, "GET", path)
			v.wantCode(err, fault.ValidationFailed, "path")
		}
	})
}

// zeros is a source of randomness that returns zeros only.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
