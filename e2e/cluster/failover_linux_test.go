package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/keygatetest/redistest"
)

// Guarantee: when the primary of PostgreSQL is killed and its synchronous replica is promoted, the nodes go
// on by themselves, with a --database-url that names both. No answered change is lost, no revoked key is
// admitted at any time, and on the new primary a change waits for one lease.
func TestFailover(t *testing.T) {
	f := &fleet{T: t}
	f.postgres = postgrestest.Start(t, postgrestest.Config{})
	primary := f.postgres.Database(t, "")
	replica := f.postgres.Replica(t)
	f.url = f.postgres.FailoverURL(replica, primary)
	f.redis = redistest.Start(t)
	f.startNodes(func() stores { return stores{databaseURL: f.url, redisURL: "redis://" + f.redis.Addr} })
	l := startLoad(f)
	l.revocations()

	f.postgres.Kill(t)
	l.await("failed changes", l.failures.Load, 2*(managers+tokenManagers+userManagers)) // so that no answer from before is on its way
	before := time.Now()
	replica.Promote(t)
	l.revocations()
	if first := l.firstRevocation(before); first.Sub(before) < leaseTTL {
		t.Errorf("a change was answered %v after the replica was promoted, want at least %v", first.Sub(before), leaseTTL)
	}
	for _, n := range f.nodes {
		n.awaitReady()
	}
	l.stopChanges()
	l.stopRequests()
	l.checkChanges()
	l.finish()
	if t.Failed() {
		t.Log(l.outputs())
	}
}

// firstRevocation returns when the first revocation after a time was answered.
func (l *load) firstRevocation(after time.Time) (first time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.revoked {
		if k.answered.After(after) && (first.IsZero() || k.answered.Before(first)) {
			first = k.answered
		}
	}
	return first
}

// checkChanges checks that the store has every change that was answered.
func (l *load) checkChanges() {
	states := map[string]client.KeyState{}
	for k, err := range l.f.nodes[0].api(l.f.keys[0]).Keys(l.f.Context(), client.KeyFilter{ListOptions: client.ListOptions{PageSize: 100}}) {
		if err != nil {
			l.f.Fatal(err)
		}
		states[k.KeyID] = k.State
	}
	for _, k := range l.live {
		if strings.HasPrefix(k.id, "key_") && !k.ends.Load() && states[k.id] != client.KeyStateActive {
			l.f.Errorf("key %s, whose creation was answered, has the state %q", k.id, states[k.id])
		}
	}
	for _, k := range l.revoked {
		if k.by == denied {
			continue
		}
		if state, ok := states[k.id]; !ok || state == client.KeyStateActive {
			l.f.Errorf("key %s, whose end was answered, has the state %q", k.id, state)
		}
	}
}
