package upstream

import (
	"testing"

	"github.com/keygate/keygate/internal/netguard"
)

// Guarantee: a pool that was not used for Config.Retain is removed when a pool is added.
func TestPoolsForget(t *testing.T) {
	p, err := NewPools(Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	get := func(host string) *Pool {
		pool, err := p.Get(Origin{Scheme: "http", Host: host})
		if err != nil {
			t.Fatal(err)
		}
		return pool
	}
	left, kept := get("left.test"), get("kept.test")
	left.used.Add(-int64(p.cfg.Retain.Seconds()) - 2)
	get("new.test")
	if get("kept.test") != kept {
		t.Error("a pool in use was removed")
	}
	if get("left.test") == left {
		t.Error("an unused pool was kept")
	}
}
