package snapshot_test

import (
	"context"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: a revoked key stays known, with its account, for 24 hours after its revocation,
// also after everything was loaded again, and no longer.
func TestRevokedKeyIsKnownForADay(t *testing.T) {
	h := newHarness(t)
	k, _ := h.key()
	h.source.PutKey(k)
	h.catchUp()
	want := func(when string, known bool) {
		t.Helper()
		keyID, accountID, ok := h.follower.RevokedKey(k.Digest)
		if ok != known || ok && (id.Format(id.Key, keyID) != k.ID || accountID != h.account.ID) {
			t.Errorf("%s: got key %x of account %q, %t; want it known: %t", when, keyID, accountID, ok, known)
		}
	}
	want("before the revocation", false)
	k.RevokedAt = time.Unix(0, h.clock.Now().Wall).UTC()
	h.source.PutKey(k)
	h.catchUp()
	want("at the revocation", true)
	h.clock.Advance(24 * time.Hour)
	want("24 hours later", true)
	restarted := newFollower(t, h)
	if err := restarted.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := restarted.RevokedKey(k.Digest); !ok {
		t.Error("the key is not known after a restart")
	}
	h.clock.Advance(time.Microsecond)
	want("later", false)
	h.follower.SweepRevoked()
	if n := h.follower.RevokedKeys(); n != 0 {
		t.Errorf("%d keys are held after their time, want 0", n)
	}
}

// Guarantee: the number of revoked keys that are held is bounded, for each account and in
// all. The oldest keys of the account that has the most are dropped first, so that no account makes
// another's keys be dropped.
func TestRevokedKeysAreBounded(t *testing.T) {
	h := newHarness(t)
	h.follower.BoundRevoked(10, 25)
	revoke := func(accountID string, n int) (keys []apikey.Key) {
		for i := range n {
			k, _ := h.key()
			k.AccountID = accountID
			k.RevokedAt = time.Unix(0, h.clock.Now().Wall).Add(-time.Duration(n-i) * time.Second).UTC()
			h.source.PutKey(k)
			keys = append(keys, k)
		}
		h.catchUp()
		return keys
	}
	known := func(keys []apikey.Key) (n int) {
		for i := range keys {
			if _, _, ok := h.follower.RevokedKey(keys[i].Digest); ok {
				n++
			}
		}
		return n
	}
	small := revoke(id.New(id.Account), 3)
	large := revoke(id.New(id.Account), 30)
	if got := known(large[20:]); got != 10 || known(large) != 10 {
		t.Errorf("of one account: got %d of the newest 10 of %d known, want 10 of 10", got, known(large))
	}
	revoke(id.New(id.Account), 10)
	revoke(id.New(id.Account), 10)
	if got := h.follower.RevokedKeys(); got != 25 {
		t.Errorf("got %d keys in all, want 25", got)
	}
	if got := known(small); got != 3 {
		t.Errorf("got %d keys of the account that has few, want 3", got)
	}
}

// Guarantee: when the deletion of a gateway is in force, so is the end of the keys that are restricted to it, although
// their own changes may follow later. They stay known as revoked. Keys of other gateways, and of a gateway that was
// only changed, are as before.
func TestKeysEndWithTheirGateway(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	bound, _ := h.key()
	bound.GatewayID = g.ID
	free, _ := h.key()
	for _, k := range []apikey.Key{bound, free} {
		h.source.PutKey(k)
	}
	h.source.PutGateway(g)
	h.catchUp()
	accepted := func(when string, k apikey.Key, want bool) {
		t.Helper()
		if got := h.follower.Current().KeyByDigest(k.Digest) != nil; got != want {
			t.Errorf("%s: the key %q is in force: %t, want %t", when, k.Name, got, want)
		}
	}
	accepted("before", bound, true)
	h.source.PutGateway(g)
	h.catchUp()
	accepted("after a change of the gateway", bound, true)
	h.source.DeleteGateway(g.ID)
	h.catchUp()
	accepted("after the deletion", bound, false)
	accepted("after the deletion", free, true)
	keyID, _, ok := h.follower.RevokedKey(bound.Digest)
	if !ok || id.Format(id.Key, keyID) != bound.ID {
		t.Error("the key is not known as revoked")
	}
}
