package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/keygatetest/leaktest"
	"github.com/keygate/keygate/internal/snapshot"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var errDown = errors.New("the store cannot be reached")

// memory is a store of leases in memory.
type memory struct {
	mu    sync.Mutex
	rows  map[string]lease.Row
	head  lease.Position
	down  bool // no call is answered
	deaf  bool // calls are carried out, and not answered
	views int
	ended int
	ahead time.Duration // how far the store's clock is ahead
	// unknown is a position of another history.
	unknown lease.Position
}

func newMemory() *memory { return &memory{rows: map[string]lease.Row{}} }

// commit makes the change with the given number the newest.
func (m *memory) commit(number int64) snapshot.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.head = lease.Position{Number: number, Mark: [8]byte{byte(number)}}
	return snapshot.Position(m.head)
}

func (m *memory) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// Carry implements LeaseStore.
func (m *memory) Carry(_ context.Context, c lease.Call) (lease.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return lease.Answer{}, errDown
	}
	var before *lease.Row
	if r, ok := m.rows[c.Node]; ok {
		before = &r
	}
	next, a := lease.Carry(before, &c, lease.Log{Known: c.Position != m.unknown || c.Position == lease.Position{}, Newest: m.head})
	if a.Result == lease.Done {
		m.rows[c.Node] = next
	}
	a.Time = time.Now().Add(m.ahead)
	if m.deaf {
		return lease.Answer{}, errDown
	}
	return a, nil
}

// LeaseView implements ViewStore.
func (m *memory) LeaseView(_ context.Context, about []lease.Position) (*lease.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return nil, errDown
	}
	m.views++
	v := &lease.View{Server: "one", Settled: true}
	for _, name := range slices.Sorted(maps.Keys(m.rows)) {
		v.Rows = append(v.Rows, m.rows[name])
	}
	for _, p := range about {
		if p == m.unknown && p.Number > 0 {
			v.Unknown = append(v.Unknown, p)
		}
	}
	return v, nil
}

// EndLease implements ViewStore.
func (m *memory) EndLease(_ context.Context, s lease.Seen) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return false, errDown
	}
	r := m.rows[s.Node]
	next, ok := r.End(s)
	if ok {
		m.rows[s.Node] = next
		m.ended++
	}
	return ok, nil
}

// SettleServer implements ViewStore.
func (m *memory) SettleServer(context.Context, string) error { return nil }

// follower is what a node has applied.
type follower struct {
	store   *memory
	mu      sync.Mutex
	applied snapshot.Position
	stuck   bool
}

func (f *follower) Applied() snapshot.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applied
}

// set sets whether CatchUp fails.
func (f *follower) set(stuck bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stuck = stuck
}

func (f *follower) CatchUp(context.Context, ...snapshot.Change) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stuck {
		return errDown
	}
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.applied = snapshot.Position(f.store.head)
	return nil
}

// testNode is a node without a data plane.
type testNode struct {
	*Member
	follower *follower
	store    *memory
}

func bootClock() func() lease.Instant {
	began := time.Now()
	return func() lease.Instant { return lease.Instant(time.Since(began)) + 1 }
}

const ttl = 10 * time.Second

// newNode returns a node that is not started. Its store is reached over a line of its own.
func newNode(t *testing.T, store LeaseStore, shared *memory, name string, serve bool) *testNode {
	t.Helper()
	f := &follower{store: shared}
	m, err := NewMember(MemberConfig{Name: name, TTL: ttl, Store: store, Clock: bootClock(), Random: rand.Reader, Serve: serve})
	if err != nil {
		t.Fatal(err)
	}
	m.Follow(f)
	return &testNode{Member: m, follower: f, store: shared}
}

// started starts a node and stops it when the test ends.
func (n *testNode) started(t *testing.T) *testNode {
	t.Helper()
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.stop(t) })
	return n
}

func (n *testNode) stop(t *testing.T) {
	t.Helper()
	if err := n.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// apply puts the newest change in force, as the Follower does when it is notified.
func (n *testNode) apply() {
	_ = n.follower.CatchUp(context.Background())
	n.Applied()
}

// line is a connection of one node to the store, which can be cut.
type line struct {
	*memory
	mu  sync.Mutex
	cut bool
}

func (l *line) Carry(ctx context.Context, c lease.Call) (lease.Answer, error) {
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	if cut {
		return lease.Answer{}, errDown
	}
	return l.memory.Carry(ctx, c)
}

func (l *line) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
}

func newTestWaiter(t *testing.T, store *memory) *Waiter {
	t.Helper()
	w := NewWaiter(WaiterConfig{Store: store, TTL: ttl, Clock: bootClock()})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// after lets virtual time pass.
func after(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}
