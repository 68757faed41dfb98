package ratelimit

import (
	"context"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/id"
	"pgregory.net/rapid"
)

// reserverModel drives a Reserver without its goroutine, so that the test controls when it
// reserves, when it crashes and when the store fails, and knows the expected counts.
type reserverModel struct {
	t        *rapid.T
	store    *memoryStore
	reserver *Reserver
	now      time.Time
	caps     map[bool]int64 // by per: key

	passed map[DailyCount]int64 // requests that passed, keyed by the count with Used set to 0
	known  map[DailyCount]int64 // requests that passed or were lost in a crash
	lost   map[DailyCount]int64 // requests that were lost in all crashes of the day
	unsure map[DailyCount]int64 // requests that the store counted although it said that it failed
}

const modelLimit = "rt_model"

func newReserverModel(t *rapid.T) *reserverModel {
	m := &reserverModel{
		t: t, store: newMemoryStore(), now: time.Unix(0, startWall),
		caps:   map[bool]int64{false: drawCap(t), true: drawCap(t)},
		passed: make(map[DailyCount]int64), known: make(map[DailyCount]int64), lost: make(map[DailyCount]int64), unsure: make(map[DailyCount]int64),
	}
	m.boot()
	return m
}

func drawCap(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{1, 2, 7, 99, 100, 199, 200, 250, 1000, 5000}).Draw(t, "cap")
}

func (m *reserverModel) boot() {
	l, err := NewReserver(ReserverConfig{Store: m.store, Now: func() time.Time { return m.now }})
	if err != nil {
		m.t.Fatal(err)
	}
	l.atOnce = 2 // pieces, with rounds between them
	m.reserver = l
}

func (m *reserverModel) day() int64 { return dayOf(m.now.UnixNano()) }

func (m *reserverModel) count(key int) DailyCount {
	c := DailyCount{LimitID: modelLimit, Day: m.day()}
	if key > 0 {
		c.KeyID = id.Format(id.Key, testKey(key))
	}
	return c
}

// daily finds a count as the data plane does: number 0 is shared, others are keys.
func (m *reserverModel) daily(key int) *Daily {
	if key == 0 {
		return m.reserver.Daily(modelLimit, perDay(m.caps[false]))
	}
	keys := m.reserver.Dailies(modelLimit, perDay(m.caps[true]))
	if key == ownCap { // which is the same, but given by the key
		return keys.OfAccount(&AccountBudget{}).DailyOf(testKey(key), m.caps[true])
	}
	return keys.Daily(testKey(key))
}

// ownCap is the number of a key with a cap of its own.
const ownCap = 3

// request sends one request, waits as the data plane does, and checks the decision.
func (m *reserverModel) request(key int) {
	c, limit := m.count(key), m.caps[key > 0]
	for range 10 {
		limits := []Limit{{Scope: DailyScope, Daily: m.daily(key)}}
		var s [1]Status
		r, _ := decide(Instant{Wall: m.now.UnixNano()}, limits, s[:])
		switch r {
		case Stale:
			continue
		case NeedsReservation:
			m.wait(limits[0].Daily)
			if m.store.fail {
				m.unsure[c] = 1
				return // the data plane responds with 503
			}
			continue
		case Admitted:
			if m.passed[c] >= limit || m.known[c] >= limit {
				m.t.Fatalf("request %d passed a cap of %d", m.passed[c]+1, limit)
			}
			m.passed[c]++
			m.known[c]++
		case Refused:
			if m.known[c] < limit {
				m.t.Fatalf("refused after %d of %d", m.known[c], limit)
			}
		}
		if want := max(0, limit-m.known[c]); s[0].Remaining != want || s[0].Limit != limit {
			m.t.Fatalf("%d of %d left, want %d", s[0].Remaining, s[0].Limit, want)
		}
		return
	}
	m.t.Fatal("a daily cap cannot decide although the store works")
}

// wait does what Wait does, with one round.
func (m *reserverModel) wait(d *Daily) {
	d.waiting.Add(1)
	m.reserver.enqueue(d)
	m.reserver.serve(context.Background())
	d.waiting.Add(-1)
	if m.store.fail {
		m.reserver.enqueue(d)
	}
}

// lose compares the store with the model after a crash, and sets the model to the store. All
// crashes of a day together may lose the budget of the cap, and one request more if a store that
// fails has counted it. After the cap was lowered, they may
// have lost more than its new budget, and then lose nothing more.
func (m *reserverModel) lose() {
	for c, used := range m.store.counts {
		lost, limit := used-m.known[c], m.caps[c.KeyID != ""]
		if lost < 0 || lost > max(0, max(1, limit/100)-m.lost[c])+m.unsure[c] && c.Day == m.day() {
			m.t.Fatalf("a crash loses %d of a cap of %d, and those before have lost %d", lost, limit, m.lost[c])
		}
		m.known[c] = used
		m.lost[c] += lost
	}
	clear(m.unsure)
	for c, known := range m.known {
		if known > m.store.counts[c] {
			m.t.Fatalf("a crash forgets %d requests", known-m.store.counts[c])
		}
	}
}

// Guarantee: through crashes, restarts, failures of the store, changes of the limit and steps
// of the clock, at most the cap passes in a day, and all crashes of a day together lose at most a
// hundredth of the cap, or one request.
func TestReserverSurvivesFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newReserverModel(t)
		ctx := context.Background()
		t.Repeat(map[string]func(*rapid.T){
			"one": func(t *rapid.T) { m.request(rapid.IntRange(0, 3).Draw(t, "key")) },
			"many": func(t *rapid.T) {
				key := rapid.IntRange(0, 3).Draw(t, "key")
				for range rapid.IntRange(1, 400).Draw(t, "requests") {
					m.request(key)
				}
			},
			"reserve": func(*rapid.T) { m.reserver.serve(ctx) },
			"sweep":   func(*rapid.T) { m.reserver.sweep(ctx) },
			"refund": func(t *rapid.T) { // another limit refuses after this one was charged
				m.store.fail = false
				d := m.daily(rapid.IntRange(0, 3).Draw(t, "key"))
				m.wait(d)
				if w := d.load(); w == closedDaily || w.left() == 0 || !d.swap(w, w+oneUsed-oneLeft) {
					return
				}
				d.charged(d.load())
				if rapid.Bool().Draw(t, "saved in between") {
					d.limit.reserver.enqueue(d)
					m.reserver.serve(ctx)
				}
				d.refund(m.day())
				m.reserver.serve(ctx)
			},
			"leave": func(t *rapid.T) { // a caller waits and gives up: what was reserved for it is given up too
				m.store.fail = false
				d := m.daily(rapid.IntRange(0, 3).Draw(t, "key"))
				m.wait(d)
				m.reserver.enqueue(d)
				m.reserver.serve(ctx)
			},
			"crash": func(*rapid.T) {
				m.store.fail = false
				m.lose()
				m.boot()
			},
			"crash while one waits": func(t *rapid.T) {
				m.store.fail = false
				key := rapid.IntRange(0, 3).Draw(t, "key")
				d := m.daily(key)
				others := rapid.Int64Range(0, 100).Draw(t, "others that wait")
				d.waiting.Add(others)
				m.wait(d)
				d.waiting.Add(-others)
				if d.canDecide(m.day()) && d.load().left() > 0 && d.rangeOf(d.cap()) == 0 {
					m.known[m.count(key)]++ // one counts as passed, however many wait
				}
				m.lose()
				m.boot()
			},
			"restart": func(*rapid.T) { m.restart(ctx) },
			"store": func(t *rapid.T) {
				m.store.fail = rapid.Bool().Draw(t, "fails")
				m.store.half = rapid.Bool().Draw(t, "after it has saved")
			},
			"cap": func(t *rapid.T) {
				m.store.fail = false
				perKey := rapid.Bool().Draw(t, "per key")
				m.caps[perKey] = drawCap(t)
				m.daily(0)
				m.daily(1)
				m.daily(ownCap)
				m.reserver.serve(ctx)
			},
			"drop":  func(*rapid.T) { m.drop(ctx) },
			"clock": func(t *rapid.T) { m.stepClock(ctx, t) },
		})
	})
}

// restart stops and starts the Reserver, which must not lose a request of the day.
func (m *reserverModel) restart(ctx context.Context) {
	m.store.fail = false
	m.reserver.started = true
	shared := m.daily(0)
	lost, today := shared.lost.Load(), m.reserver.day == m.day()
	if err := m.reserver.Stop(ctx); err != nil {
		m.t.Fatal(err)
	}
	if stored := m.store.lost[m.count(0)]; today && shared.load().isOf(m.day()) && stored != lost {
		m.t.Fatalf("after a restart %d requests count as lost in crashes, want %d", stored, lost)
	}
	for c, known := range m.known {
		if c.Day == m.day() && m.reserver.day == c.Day && m.store.counts[c] != known {
			m.t.Fatalf("after a restart the store's count is %d, want %d", m.store.counts[c], known)
		}
	}
	m.lose()
	m.boot()
}

// drop drops the limit, which must not lose a request if the store works.
func (m *reserverModel) drop(ctx context.Context) {
	m.reserver.Drop(modelLimit)
	if m.store.fail {
		m.reserver.serve(ctx) // the unused part of a range is lost if it cannot be returned
		m.lose()
		return
	}
	m.reserver.serve(ctx)
	for c, known := range m.known {
		if c.Day == m.reserver.day && m.store.counts[c] != known {
			m.t.Fatalf("after the limit was dropped the store's count is %d, want %d", m.store.counts[c], known)
		}
	}
}

// stepClock sets the clock forwards or back, which must not lose a request of the old day.
func (m *reserverModel) stepClock(ctx context.Context, t *rapid.T) {
	m.store.fail = false
	left := m.reserver.day
	m.now = m.now.Add(time.Duration(rapid.Int64Range(-30, 30).Draw(t, "hours")) * time.Hour)
	m.reserver.serve(ctx)
	for c, used := range m.store.counts {
		if c.Day == left && left != m.day() && used != m.known[c] {
			m.t.Fatalf("after a step of the clock the store's count is %d, want %d", used, m.known[c])
		}
	}
}
