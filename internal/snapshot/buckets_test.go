package snapshot_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Guarantee: the buckets of revoked keys, which nobody can use any more, do not fill the memory; nor
// do the buckets of a limit that is not in force any more. A key that was rotated leaves its bucket
// to its successor.
func TestBucketsOfEndedKeysAreDropped(t *testing.T) {
	h := newHarness(t)
	limited := route("/orders", config(t, "1/day", "", "", ratelimit.PerKey), "GET")
	g := h.gateway()
	h.source.PutGateway(g, limited)
	h.follower.BoundBuckets(1 << 20)
	h.catchUp()

	use := func(bucket [16]byte) ratelimit.Result {
		return new(ratelimit.Limiter).Decide(h.clock.Now(), limitsOf(h, g.ID, "/orders", bucket))
	}
	before := h.follower.BucketBudget().Used()
	const keys = 500
	for range keys {
		k, secret := h.key()
		h.source.PutKey(k)
		h.catchUp()
		if r := use(h.follower.Current().FindKey(secret).BucketID()); r != ratelimit.Admitted {
			t.Fatalf("the first request of a key: %v", r)
		}
		k.RevokedAt = time.Unix(0, h.clock.Now().Wall)
		h.source.PutKey(k)
		h.catchUp()
	}
	old, _ := h.key()
	successor, secret := h.key()
	old.RotatedTo, successor.RotatedFrom, successor.BucketID = successor.ID, old.ID, old.ID
	h.source.PutKey(old)
	h.source.PutKey(successor)
	h.catchUp()
	shared := h.follower.Current().FindKey(secret).BucketID()
	if r := use(shared); r != ratelimit.Admitted {
		t.Fatalf("the first request of a rotated key: %v", r)
	}
	old.RevokedAt = time.Unix(0, h.clock.Now().Wall)
	h.source.PutKey(old)
	h.catchUp()

	full := h.follower.BucketBudget().Used() - before
	h.follower.SweepBuckets()
	if left := h.follower.BucketBudget().Used() - before; left < full/2 {
		t.Errorf("%d of %d bytes are left within a minute: decisions may still use the buckets", left, full)
	}
	h.follower.SweepBuckets()
	h.follower.SweepBuckets()
	if left := h.follower.BucketBudget().Used() - before; left > full/16 {
		t.Errorf("%d of %d bytes are left after %d keys were revoked", left, full, keys)
	}
	if r := use(shared); r != ratelimit.Refused {
		t.Errorf("the second request of the rotation whose old key was revoked: %v, want it refused", r)
	}

	h.source.PutGateway(g)
	h.catchUp()
	if left := h.follower.BucketBudget().Used(); left != 0 {
		t.Errorf("%d bytes are left after the route was deleted", left)
	}
}

func limitsOf(h *harness, gatewayID, path string, bucket [16]byte) *ratelimit.Charge {
	h.t.Helper()
	var c ratelimit.Charge
	if !routeOf(h, gatewayID, path).AddLimits(&c, bucket, clientip.Group{}) {
		h.t.Fatal("there is no room for a bucket")
	}
	return &c
}

func routeOf(h *harness, gatewayID, path string) *snapshot.Route {
	return h.follower.Current().GatewayByID(gatewayID).FindNode(path).Route("GET")
}

// Guarantee: when the memory of buckets gets short, buckets that are full again are dropped at once, and
// not only once a minute.
func TestBucketsAreSweptWhenMemoryIsShort(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	h.source.PutGateway(g, route("/orders", config(t, "1/s", "", "", ratelimit.PerKey), "GET"))
	h.follower.BoundBuckets(64 << 10)
	h.catchUp()
	if err := h.follower.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.follower.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	keys := uint32(0)
	fits := func() bool {
		keys++
		var bucket [16]byte
		binary.BigEndian.PutUint32(bucket[:], keys)
		var c ratelimit.Charge
		fits := routeOf(h, g.ID, "/orders").AddLimits(&c, bucket, clientip.Group{})
		if fits {
			new(ratelimit.Limiter).Decide(h.clock.Now(), &c)
		}
		return fits
	}
	for fits() {
	}
	h.clock.Advance(10 * time.Second)
	awaittest.True(t, "full buckets have made room", fits)
}
