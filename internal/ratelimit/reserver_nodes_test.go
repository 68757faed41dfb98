package ratelimit

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// reserverNodes is several nodes over one store, without their goroutines.
type reserverNodes struct {
	t      *rapid.T
	store  *memoryStore
	nodes  []*Reserver
	now    time.Time
	limit  int64
	passed int64
	unsure int64 // requests that the store may have counted although it said that it failed
}

func (m *reserverNodes) boot(i int) {
	r, err := NewReserver(ReserverConfig{
		Store: m.store, Now: func() time.Time { return m.now }, Nodes: func() int { return len(m.nodes) },
	})
	if err != nil {
		m.t.Fatal(err)
	}
	r.atOnce = 1
	m.nodes[i] = r
}

func (m *reserverNodes) daily(i int) *Daily { return m.nodes[i].Daily(modelLimit, perDay(m.limit)) }

// request sends a request to node i, and reports whether it passed.
func (m *reserverNodes) request(i int) bool {
	for range 10 {
		d := m.daily(i)
		var s [1]Status
		switch r, _ := decide(Instant{Wall: m.now.UnixNano()}, []Limit{{Scope: DailyScope, Daily: d}}, s[:]); r {
		case Admitted:
			m.passed++
			if m.passed > m.limit {
				m.t.Fatalf("request %d passed a cap of %d", m.passed, m.limit)
			}
			return true
		case Refused:
			return false
		case NeedsReservation:
			d.waiting.Add(1)
			m.nodes[i].enqueue(d)
			m.nodes[i].serve(context.Background())
			d.waiting.Add(-1)
			if m.store.fail {
				m.unsure++
				return false
			}
		}
	}
	m.t.Fatal("a daily cap cannot decide although the store works")
	return false
}

// Guarantee: a cap that nobody uses is not claimed: however many nodes start and are killed, nothing of it is
// lost. A small cap is claimed one by one, so that nodes that were used once hold nothing either.
func TestKilledNodesLoseNothingOfASmallCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &reserverNodes{t: t, store: newMemoryStore(), now: time.Unix(0, startWall), limit: 5, nodes: make([]*Reserver, 3)}
		ctx := context.Background()
		start := func(i int) {
			m.boot(i)
			m.daily(i)
			m.nodes[i].serve(ctx)
		}
		for i := range m.nodes {
			start(i)
		}
		for passed := range m.limit {
			for range rapid.IntRange(0, 4).Draw(t, "kills") {
				start(rapid.IntRange(0, 2).Draw(t, "killed"))
			}
			if !m.request(rapid.IntRange(0, 2).Draw(t, "node")) {
				t.Fatalf("refused after %d of %d", passed, m.limit)
			}
		}
	})
}

// Guarantee: several nodes together never exceed a cap, through crashes, lost answers and failures of
// the store. All crashes of a day together lose at most a hundredth of the cap, or one request, and
// one more for each request that a failing store may have counted. Any node can use the rest of the
// cap, once the others have given back their idle ranges.
func TestNodesNeverExceedADailyCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &reserverNodes{t: t, store: newMemoryStore(), now: time.Unix(0, startWall), limit: drawCap(t), nodes: make([]*Reserver, rapid.IntRange(2, 5).Draw(t, "nodes"))}
		for i := range m.nodes {
			m.boot(i)
		}
		node := rapid.IntRange(0, len(m.nodes)-1)
		ctx := context.Background()
		t.Repeat(map[string]func(*rapid.T){
			"requests": func(t *rapid.T) {
				i := node.Draw(t, "node")
				for range rapid.IntRange(1, 200).Draw(t, "requests") {
					m.request(i)
				}
			},
			"crash":     func(t *rapid.T) { m.boot(node.Draw(t, "node")) },
			"start":     func(t *rapid.T) { i := node.Draw(t, "node"); m.boot(i); m.daily(i); m.nodes[i].serve(ctx) },
			"reserve":   func(t *rapid.T) { m.nodes[node.Draw(t, "node")].serve(ctx) },
			"give back": func(t *rapid.T) { m.nodes[node.Draw(t, "node")].giveBack(ctx) },
			"store": func(t *rapid.T) {
				m.store.fail, m.store.half = rapid.Bool().Draw(t, "fails"), rapid.Bool().Draw(t, "after it has saved")
			},
		})
		m.store.fail = false
		for range 2 { // the first call looks, the second gives back
			for _, r := range m.nodes {
				m.daily(0)
				r.serve(ctx)
				r.giveBack(ctx)
			}
		}
		m.now = m.now.Add(2 * time.Second)
		m.request(0) // it may be refused, and then asks again
		m.nodes[0].serve(ctx)
		for m.request(0) {
			continue
		}
		if lost := m.limit - m.passed; lost > max(1, m.limit/100)+m.unsure {
			t.Fatalf("%d of a cap of %d cannot be used", lost, m.limit)
		}
	})
}
