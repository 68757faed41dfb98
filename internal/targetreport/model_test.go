package targetreport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/balance"
)

// memory is a Store of nodes that all have leases.
type memory struct {
	live    map[string]string // names of nodes, by the claimants of their leases
	reports map[string]map[Key]Report
	ended   map[string]*Batch // the last batch of the last report
	writes  int
	fails   bool // the next write is lost, and fails
	unknown bool // the next write is carried out, and fails
}

func newMemory() *memory {
	return &memory{live: map[string]string{}, reports: map[string]map[Key]Report{}, ended: map[string]*Batch{}}
}

var errLost = errors.New("lost")

func (m *memory) PutTargetReports(_ context.Context, b *Batch) error {
	if m.fails {
		m.fails = false
		return errLost
	}
	m.writes++
	if len(b.Put)+len(b.Remove) > maxRows {
		return fmt.Errorf("%d rows at once", len(b.Put)+len(b.Remove))
	}
	rows := m.reports[b.Claimant]
	if rows == nil {
		rows = map[Key]Report{}
		m.reports[b.Claimant] = rows
	}
	for _, r := range b.Put {
		rows[r.key()] = r
	}
	for _, k := range b.Remove {
		delete(rows, k)
	}
	if b.Ends {
		m.ended[b.Claimant] = b
	}
	if m.unknown {
		m.unknown = false
		return errLost
	}
	return nil
}

func (m *memory) TargetReports(_ context.Context, n balance.Name, except string, limit int) (list []NodeReport, _ error) {
	for _, claimant := range slices.Sorted(maps.Keys(m.live)) {
		for _, r := range m.reports[claimant] {
			if r.Name == n && claimant != except && len(list) < limit {
				list = append(list, NodeReport{m.live[claimant], r})
			}
		}
	}
	return list, nil
}

func (m *memory) TargetFlights(_ context.Context, n balance.Name, url string) (list []NodeFlight, _ error) {
	for _, claimant := range slices.Sorted(maps.Keys(m.live)) {
		f := NodeFlight{Node: m.live[claimant], Claimant: claimant, Number: -1}
		if b := m.ended[claimant]; b != nil {
			f.Number, f.LeftOut = b.Number, slices.Contains(b.LeftOut, n.Account) || slices.Contains(b.LeftOut, AllAccounts)
		}
		for _, r := range m.reports[claimant] {
			if r.Name == n && r.URL == url {
				f.InFlight += r.InFlight
			}
		}
		list = append(list, f)
	}
	return list, nil
}

func (m *memory) TrimTargetReports(context.Context, int) (int, error) { return 0, nil }

// world is nodes with virtual time, which share a store.
type world struct {
	now    time.Duration
	store  *memory
	head   int64                            // number of the newest change
	target map[string]*balance.TargetConfig // as the newest change has them, by URL
	former map[string]int64                 // the change that took a target away
	nodes  []*testNode
}

type testNode struct {
	name, claimant string
	epoch          int
	number         int64 // of the newest change in force
	fleet          *balance.Fleet
	upstream       *balance.Upstream
	reporter       *Reporter
	view           *View
	running        []*balance.Attempts
}

var name = balance.Name{Account: "acct_1", Gateway: "gw_1", Upstream: "default"}

func newWorld(nodes int) *world {
	w := &world{store: newMemory(), target: map[string]*balance.TargetConfig{}, former: map[string]int64{}}
	for _, url := range []string{"http://a", "http://b", "http://c"} {
		w.target[url] = &balance.TargetConfig{URL: url, Origin: url, Address: url[7:] + ":80", Weight: 1}
	}
	for i := range nodes {
		n := &testNode{name: fmt.Sprint("node-", i), fleet: balance.NewFleet(nil)}
		clock := Clock{Mono: func() time.Duration { return w.now }, Wall: func() time.Time { return time.Unix(0, int64(w.now)) }}
		n.reporter, _ = New(Config{Store: w.store, Fleet: n.fleet, Clock: clock, Claimant: func() string { return n.claimant }, InForce: func() int64 { return n.number }})
		n.view = NewView(ViewConfig{Node: n.name, Fleet: n.fleet, Clock: clock, Serves: true, Store: w.store, Claimant: func() string { return n.claimant }})
		w.nodes = append(w.nodes, n)
		w.lease(n)
		w.apply(n)
	}
	return w
}

// lease begins a new lease of a node, in place of another.
func (w *world) lease(n *testNode) {
	delete(w.store.live, n.claimant)
	n.epoch++
	n.claimant = fmt.Sprint(n.name, ".", n.epoch)
	w.store.live[n.claimant] = n.name
}

// apply puts the newest change in force on a node.
func (w *world) apply(n *testNode) {
	var cfg balance.Config
	cfg.Ejection = balance.DefaultEjection()
	for _, url := range slices.Sorted(maps.Keys(w.target)) {
		cfg.Targets = append(cfg.Targets, *w.target[url])
	}
	n.upstream = n.fleet.Upstream(w.now, name, &cfg)
	n.number = w.head
}

func (n *testNode) inFlight(url string) (open int64) {
	for _, a := range n.running {
		if a.Target().URL() == url {
			open++
		}
	}
	return open
}

// Guarantee: targets.md 6. Whatever requests begin and end, changes, lost writes and leases there are, a node that asks never takes a
// target for done while a request is in flight there on a node that has the change in force; and once nothing is in flight and
// every node has reported, it does. Without a change nothing is written.
func TestNothingInFlightIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.IntRange(1, 3).Draw(t, "nodes"))
		node := func() *testNode { return rapid.SampledFrom(w.nodes).Draw(t, "node") }
		url := func() string {
			return rapid.SampledFrom([]string{"http://a", "http://b", "http://c"}).Draw(t, "target")
		}
		change := func() {
			w.head++
			for _, n := range w.nodes { // a change is acknowledged when it is in force everywhere
				w.apply(n)
			}
		}
		actions := map[string]func(*rapid.T){
			"begin": func(*rapid.T) {
				n, a := node(), &balance.Attempts{}
				a.Begin(w.now, n.upstream)
				if a.Pick(w.now) == nil {
					a.Finish(w.now)
					return
				}
				n.running = append(n.running, a)
			},
			"end": func(t *rapid.T) {
				n := node()
				if len(n.running) == 0 {
					return
				}
				i := rapid.IntRange(0, len(n.running)-1).Draw(t, "request")
				n.running[i].End(w.now, rapid.SampledFrom([]balance.Result{balance.OK, balance.Connect}).Draw(t, "result"))
				n.running[i].Finish(w.now)
				n.running = slices.Delete(n.running, i, i+1)
			},
			"take away": func(t *rapid.T) {
				u := url()
				if c := w.target[u]; c == nil || c.Drain {
					return
				}
				if rapid.Bool().Draw(t, "remove") {
					delete(w.target, u)
				} else {
					c := *w.target[u]
					c.Drain = true
					w.target[u] = &c
				}
				change()
				w.former[u] = w.head
			},
			"bring back": func(*rapid.T) {
				u := url()
				w.target[u] = &balance.TargetConfig{URL: u, Origin: u, Address: u[7:] + ":80", Weight: 1}
				delete(w.former, u)
				change()
			},
			"other change":  func(*rapid.T) { change() },
			"report":        func(*rapid.T) { _ = node().reporter.Report(t.Context()) },
			"lose":          func(*rapid.T) { w.store.fails = true },
			"lose response": func(*rapid.T) { w.store.unknown = true },
			"new lease":     func(*rapid.T) { w.lease(node()) },
			"sweep":         func(*rapid.T) { node().fleet.Sweep(w.now) },
			"pass":          func(t *rapid.T) { w.now += time.Duration(rapid.IntRange(1, 20).Draw(t, "s")) * time.Second },
			"": func(t *rapid.T) {
				for u, number := range w.former {
					w.check(t, u, number)
				}
			},
		}
		for _, often := range []string{"begin", "begin", "end", "report", "report", "take away"} {
			actions[fmt.Sprint(often, " ", len(actions))] = actions[often]
		}
		t.Repeat(actions)
		w.store.fails, w.store.unknown = false, false
		for _, n := range w.nodes {
			n.reporter.must(t)
		}
		for u, number := range w.former {
			w.checkReported(t, u, number)
		}
		w.now += time.Hour
		for _, n := range w.nodes {
			n.reporter.must(t) // ejections have ended
		}
		writes := w.store.writes
		for _, n := range w.nodes {
			n.reporter.must(t)
		}
		if w.store.writes != writes {
			t.Fatalf("%d writes without a change", w.store.writes-writes)
		}
	})
}

func (r *Reporter) must(t *rapid.T) {
	if err := r.Report(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// check fails if a node takes a target for done while a request is in flight there.
func (w *world) check(t *rapid.T, url string, number int64) {
	for _, n := range w.nodes {
		open, err := n.view.InFlight(t.Context(), name, url, number)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range w.nodes {
			if _, is := open[other.name]; !is && other.inFlight(url) > 0 {
				t.Fatalf("%s takes %s for done on %s, where %d requests are in flight", n.name, url, other.name, other.inFlight(url))
			}
		}
	}
}

// checkReported fails unless each node knows exactly what is in flight.
func (w *world) checkReported(t *rapid.T, url string, number int64) {
	for _, n := range w.nodes {
		open, err := n.view.InFlight(t.Context(), name, url, number)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range w.nodes {
			got := int64(0)
			if p, is := open[other.name]; is && p == nil {
				got = -1
			} else if is {
				got = *p
			}
			if want := other.inFlight(url); got != want {
				t.Fatalf("%s has %d in flight at %s on %s, want %d", n.name, got, url, other.name, want)
			}
		}
	}
}

// Guarantee: a node reports at most so many targets of an account and in all, those that drain with requests in flight first; if some
// of these are left out, others know that the report is not complete. Rows are written in bounded steps.
func TestReportsAreBounded(t *testing.T) {
	w := newWorld(2)
	n, asks := w.nodes[0], w.nodes[1]
	var attempts []*balance.Attempts
	many := func(account string, targets, busy int) {
		for from := 0; from < targets; from += 256 {
			of := balance.Name{Account: account, Gateway: fmt.Sprint("gw_", account, from), Upstream: "default"}
			var cfg balance.Config
			for i := from; i < min(targets, from+256); i++ {
				url := fmt.Sprintf("http://%s-%d", account, i)
				cfg.Targets = append(cfg.Targets, balance.TargetConfig{URL: url, Origin: url, Address: url, Weight: 1})
			}
			u := n.fleet.Upstream(w.now, of, &cfg)
			for range busy {
				a := &balance.Attempts{}
				a.Begin(w.now, u)
				a.Pick(w.now)
				attempts = append(attempts, a)
			}
			for i := range cfg.Targets {
				cfg.Targets[i].Drain = true
			}
			n.fleet.Upstream(w.now, of, &cfg)
		}
	}
	many("small", 10, 5)
	many("large", MaxOfAccount+500, 2)
	n.reporter.number = -1
	if err := n.reporter.Report(t.Context()); err != nil {
		t.Fatal(err)
	}
	of := map[string]int{}
	busy := 0
	for _, r := range w.store.reports[n.claimant] {
		of[r.Account]++
		if r.InFlight > 0 {
			busy++
		}
	}
	want := 0
	seen := map[*balance.Target]bool{}
	for _, a := range attempts {
		if !seen[a.Target()] {
			seen[a.Target()] = true
			want++
		}
	}
	if of["large"] != MaxOfAccount || of["small"] != 10 || busy != want || n.reporter.LeftOut() != 500 {
		t.Errorf("got %v with %d busy, %d left out; want %d of large, 10 of small, %d busy, 500 left out", of, busy, n.reporter.LeftOut(), MaxOfAccount, want)
	}
	if lacks := w.store.ended[n.claimant].LeftOut; len(lacks) != 0 {
		t.Errorf("got %v as accounts whose targets in flight are left out, want none", lacks)
	}

	all := make([]observation, 0, MaxOfAccount+1)
	for i := range MaxOfAccount + 1 {
		all = append(all, observation{Report: Report{Name: name, URL: fmt.Sprint(i), Draining: true, InFlight: 1}})
	}
	if lacks := n.reporter.bound(&all); !slices.Equal(lacks, []string{name.Account}) || len(all) != MaxOfAccount {
		t.Errorf("got %d and the accounts %v, want %d and %s", len(all), lacks, MaxOfAccount, name.Account)
	}
	w.store.ended[n.claimant].LeftOut = []string{name.Account}
	if open, err := asks.view.InFlight(t.Context(), name, "http://none", 0); err != nil || len(open) != 1 || open[n.name] != nil {
		t.Errorf("got %v, %v; want that %s has not reported", open, err, n.name)
	}
	sizes := make([]int, 3*maxLeftOut)
	all = all[:0]
	for i := range sizes {
		sizes[i] = MaxInAll / maxLeftOut
		for range sizes[i] {
			all = append(all, observation{Report: Report{Name: balance.Name{Account: fmt.Sprintf("acct_%03d", i)}, Draining: true, InFlight: 1}})
		}
	}
	if lacks := n.reporter.bound(&all); !slices.Equal(lacks, []string{AllAccounts}) || len(all) > MaxInAll || len(all) < MaxInAll*9/10 {
		t.Errorf("got %d and the accounts %v, want at most %d, and *", len(all), lacks, MaxInAll)
	}
}

// Guarantee: targets whose state changes again and again are reported every ten seconds at most, and the last state within these. That
// a target drains is reported at once.
func TestTargetsThatAlternateAreReportedSeldom(t *testing.T) {
	w := newWorld(1)
	n := w.nodes[0]
	reports := func() map[Key]Report { return w.store.reports[n.claimant] }
	of := func(url string) Report { return reports()[Key{name, url, w.target[url].Address}] }
	set := func(degraded bool) {
		for _, c := range w.target {
			c.Degraded = degraded
		}
		w.apply(n)
		if err := n.reporter.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	set(true)
	if !of("http://a").Degraded || len(reports()) != len(w.target) {
		t.Fatalf("got %v at first, want all targets at once", reports())
	}
	writes := w.store.writes
	for i := range 101 { // every two seconds
		w.now += Interval
		set(i%2 != 0)
	}
	if got := w.store.writes - writes; got > 21 {
		t.Errorf("%d writes within 202 seconds, want one in ten at most", got)
	}
	for range restTime / Interval {
		w.now += Interval
		set(false)
	}
	if of("http://a").Degraded || of("http://b").Degraded {
		t.Errorf("got %v after %s, want the last state", reports(), restTime)
	}
	w.now += Interval
	set(true)
	w.target["http://a"].Drain = true
	set(true)
	if !of("http://a").Draining {
		t.Errorf("got %v, want that the target drains", of("http://a"))
	}
}

// Guarantee: of an account whose addresses are others again and again, few rows are written at once, and all that stay are reported.
func TestAddressesThatAlternateMakeFewWrites(t *testing.T) {
	w := newWorld(1)
	n := w.nodes[0]
	const many = 3 * maxFresh
	rows := 0
	set := func(round int) {
		var cfg balance.Config
		for i := range many {
			cfg.Targets = append(cfg.Targets, balance.TargetConfig{URL: "http://x", Origin: "http://x", Address: fmt.Sprint(round, ".", i), Weight: 1, Degraded: true})
		}
		n.fleet.Upstream(w.now, balance.Name{Account: "other", Gateway: "gw_2", Upstream: "default"}, &cfg)
		w.now += Interval
		before := maps.Clone(w.store.reports[n.claimant])
		if err := n.reporter.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := w.store.reports[n.claimant]
		for k := range after {
			if _, had := before[k]; !had {
				rows++
			}
		}
		for k := range before {
			if _, has := after[k]; !has {
				rows++
			}
		}
	}
	for round := range 20 {
		set(round)
	}
	if rows > 20*2*maxFresh {
		t.Errorf("%d rows were changed in 20 reports, want %d at most", rows, 20*2*maxFresh)
	}
	for range many / maxFresh {
		set(20)
	}
	if got := len(w.store.reports[n.claimant]); got != many {
		t.Errorf("%d addresses are reported in the end, want %d", got, many)
	}
}

// Guarantee: a report says since when and until when a target is ejected, and gives a target in another state no end.
func TestEjectionsHaveAnEnd(t *testing.T) {
	wall := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	now := reporting{time.Minute, wall}
	for state, want := range map[balance.State]time.Time{balance.Ejected: wall.Add(5 * time.Second), balance.Healthy: {}, balance.Unhealthy: {}} {
		got := now.of(balance.Name{}, &balance.Status{State: state, Since: 55 * time.Second, Until: 65 * time.Second})
		if !got.Until.Equal(want) || !got.Since.Equal(wall.Add(-5*time.Second)) {
			t.Errorf("%s: got since %s until %s, want until %s", state, got.Since, got.Until, want)
		}
	}
}
