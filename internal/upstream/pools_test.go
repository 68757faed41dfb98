package upstream

import (
	"testing"

	"github.com/keygate/keygate/internal/netguard"
)

// Guarantee: A pool that nobody has used for a while goes when a new origin comes.
func TestPoolsForget(t *testing.T) {
	p, err := NewPools(Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
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
		t.Error("a pool in use was dropped")
	}
	if get("left.test") == left {
		t.Error("a pool that nobody used was kept")
	}
}
