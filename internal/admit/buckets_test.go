package admit

import (
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Guarantee: a request whose limit with per: key cannot be counted, because the account already uses as
// many buckets as it may, is refused with 503. The existing buckets stay exact, and other routes work.
func TestKeysBeyondTheMemoryOfBuckets(t *testing.T) {
	h := newHarnessWith(t, func(c *snapshot.Config) { c.BucketBytes = 16 << 10 })
	h.gateway(nil, limited(route("/each", "GET"), config(t, "2/day", "", "", ratelimit.PerKey)), route("/plain", "GET"))
	get := func(target, key string) *Verdict {
		return h.decide(Request{Target: target, Authorization: "Bearer " + key})
	}
	var counted []string
	for {
		_, key := h.key(nil)
		v := get("/each", key)
		if v.Action == Forward {
			if counted = append(counted, key); len(counted) > 1000 {
				t.Fatal("1000 buckets in 16 KiB")
			}
			continue
		}
		if v.Action != Refuse || v.Code != fault.Unavailable {
			t.Fatalf("key %d: %v %v, want a refusal with unavailable", len(counted), v.Action, v.Code)
		}
		if v := get("/plain", key); v.Action != Forward {
			t.Errorf("a route without such a limit: %v %v", v.Action, v.Code)
		}
		break
	}
	if len(counted) < 10 {
		t.Fatalf("only %d buckets in 16 KiB", len(counted))
	}
	for i, key := range counted {
		if v := get("/each", key); v.Action != Forward {
			t.Fatalf("the second request of key %d: %v %v", i, v.Action, v.Code)
		}
		if v := get("/each", key); v.Code != fault.RateLimitExceeded {
			t.Fatalf("the third request of key %d: %v %v, want a 429", i, v.Action, v.Code)
		}
	}
}
