package resolve

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/balance"
)

// begun is a look-up in the model of TestSchedule.
type begun struct {
	entry *entry
	key   wantedName
}

type wantedName struct {
	account string
	name    Name
}

// scheduleModel is what TestSchedule expects of a schedule.
type scheduleModel struct {
	now     time.Duration
	s       *schedule
	wants   map[balance.Name]map[Name]int
	refresh map[balance.Name]time.Duration
	last    map[wantedName]time.Duration // the begin of the last look-up while the name is wanted
	results map[wantedName][]Record      // the last good one while the name is wanted
	failed  map[wantedName]bool          // the last look-up has failed
	running []begun
	seen    map[balance.Name]map[Name]Found // what an upstream was told last
}

// every returns how often a name is looked up, and how many targets want it.
func (m *scheduleModel) every(k wantedName) (refresh time.Duration, uses int) {
	refresh = forever
	for owner, names := range m.wants {
		if n := names[k.name]; n > 0 && owner.Account == k.account {
			refresh, uses = min(refresh, m.refresh[owner]), uses+n
		}
	}
	return refresh, uses
}

// names returns all names that are wanted.
func (m *scheduleModel) names() map[wantedName]bool {
	all := map[wantedName]bool{}
	for owner, names := range m.wants {
		for n := range names {
			all[wantedName{owner.Account, n}] = true
		}
	}
	return all
}

// begin begins look-ups and checks when and how many.
func (m *scheduleModel) begin(t *rapid.T) {
	for _, e := range m.s.begin(m.now) {
		k := wantedName{e.of.id, e.name}
		refresh, uses := m.every(k)
		last, again := m.last[k]
		switch {
		case uses == 0:
			t.Fatalf("%+v is looked up, but nothing wants it", k)
		case again && m.now-last < refresh:
			t.Fatalf("%+v is looked up again after %v; want at least %v", k, m.now-last, refresh)
		}
		m.last[k] = m.now
		m.running = append(m.running, begun{e, k})
	}
	looks := map[string]int{}
	busy := map[wantedName]bool{}
	for _, b := range m.running {
		looks[b.key.account]++
		busy[b.key] = busy[b.key] || b.entry.state == running
	}
	for account, n := range looks {
		if n > m.s.limits.accountRunning {
			t.Fatalf("account %s has %d look-ups at a time", account, n)
		}
	}
	if len(m.running) > m.s.limits.running {
		t.Fatalf("%d look-ups at a time", len(m.running))
	}
	for k := range m.names() {
		refresh, _ := m.every(k)
		last, before := m.last[k]
		isDue := !busy[k] && (!before || m.now-last >= refresh)
		if isDue && len(m.running) < m.s.limits.running && looks[k.account] < m.s.limits.accountRunning {
			t.Fatalf("%+v is due and not looked up, with %d look-ups at a time", k, len(m.running))
		}
		if next := m.s.next(); before && !busy[k] && !isDue && next > last+refresh {
			t.Fatalf("%+v is due at %v, and the schedule waits until %v", k, last+refresh, next)
		}
	}
}

// check checks what is known, the bounds, and that every upstream was told of the changes.
func (m *scheduleModel) check(t *rapid.T) {
	extra, of := 0, map[string]int{}
	for k := range m.names() {
		got := m.s.found(k.account, k.name)
		_, uses := m.every(k)
		n := uses * max(0, len(got.Records)-1)
		extra += n
		of[k.account] += n
		want := m.results[k]
		cut := len(got.Records) < len(want)
		if len(got.Records) > len(want) || !slices.Equal(got.Records, want[:len(got.Records)]) || len(want) > 0 && len(got.Records) == 0 {
			t.Fatalf("%+v: got %v; want the first of %v", k, textOf(got.Records), textOf(want))
		}
		if got.Degraded != (cut || m.failed[k]) {
			t.Fatalf("%+v: got degraded %v with %d of %d addresses after a failure: %v", k, got.Degraded, len(got.Records), len(want), m.failed[k])
		}
	}
	if extra != m.s.extra || extra > m.s.limits.extra {
		t.Fatalf("%d addresses beside the first, counted as %d", extra, m.s.extra)
	}
	for account, n := range of {
		if n > m.s.limits.accountExtra || n != m.s.accounts[account].extra {
			t.Fatalf("account %s has %d addresses beside the first, counted as %d", account, n, m.s.accounts[account].extra)
		}
	}
	for owner, names := range m.wants {
		_, told := m.s.changed[owner]
		for n := range names {
			if found := m.s.found(owner.Account, n); !told && !reflect.DeepEqual(found, m.seen[owner][n]) {
				t.Fatalf("%v was not told that %+v is %+v; it knows %+v", owner, n, found, m.seen[owner][n])
			}
		}
	}
	for id, a := range m.s.accounts {
		if len(a.names) == 0 && a.running == 0 {
			t.Fatalf("account %s is kept without names", id)
		}
	}
}

// look makes an upstream know what there is, as a publication does.
func (m *scheduleModel) look(owner balance.Name) {
	m.seen[owner] = map[Name]Found{}
	for n := range m.wants[owner] {
		m.seen[owner][n] = m.s.found(owner.Account, n)
	}
}

// Guarantee (targets.md, section 5): each name of an account is looked up once in the shortest refresh of those that want it, at
// once when it is new, and as soon as the bounds of look-ups at a time allow. A failure keeps what was found and says degraded. The
// addresses of an account and of all stay within their bounds, and every upstream that wants a name is told of each change.
func TestSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &scheduleModel{
			s:     newSchedule(limits{running: 3, accountRunning: 2, extra: 20, accountExtra: 12}),
			wants: map[balance.Name]map[Name]int{}, refresh: map[balance.Name]time.Duration{}, last: map[wantedName]time.Duration{},
			results: map[wantedName][]Record{}, failed: map[wantedName]bool{}, seen: map[balance.Name]map[Name]Found{},
		}
		owners := rapid.Custom(func(t *rapid.T) balance.Name {
			return balance.Name{Account: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "account"), Upstream: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "upstream")}
		})
		names := rapid.Custom(func(t *rapid.T) Name { return Name{Host: rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "name")} })
		t.Repeat(map[string]func(*rapid.T){
			"want": func(t *rapid.T) {
				owner, list := owners.Draw(t, "owner"), rapid.SliceOfN(names, 0, 4).Draw(t, "names")
				refresh := time.Duration(rapid.SampledFrom([]int{1, 5, 10}).Draw(t, "refresh")) * time.Second
				m.s.want(m.now, owner, refresh, list)
				delete(m.wants, owner)
				if len(list) > 0 {
					m.wants[owner], m.refresh[owner] = map[Name]int{}, refresh
					for _, n := range list {
						m.wants[owner][n]++
					}
				}
				all := m.names()
				for _, of := range []map[wantedName]bool{m.failed} {
					maps.DeleteFunc(of, func(k wantedName, _ bool) bool { return !all[k] })
				}
				maps.DeleteFunc(m.results, func(k wantedName, _ []Record) bool { return !all[k] })
				maps.DeleteFunc(m.last, func(k wantedName, _ time.Duration) bool { return !all[k] })
				m.cut()
				m.look(owner)
			},
			"wait": func(t *rapid.T) {
				m.now += time.Duration(rapid.SampledFrom([]int{1, 400, 1000, 5000, 30_000}).Draw(t, "ms")) * time.Millisecond
			},
			"begin": m.begin,
			"end": func(t *rapid.T) {
				if len(m.running) == 0 {
					t.Skip("nothing runs")
				}
				i := rapid.IntRange(0, len(m.running)-1).Draw(t, "which")
				b := m.running[i]
				m.running = slices.Delete(m.running, i, i+1)
				var records []Record
				from := rapid.IntRange(0, 3).Draw(t, "from")
				for j := range rapid.SampledFrom([]int{0, 1, 3, 9}).Draw(t, "addresses") {
					records = append(records, Record{Addr: netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", from+j)), Weight: 1})
				}
				wanted := b.entry.state != gone
				m.s.end(m.now, b.entry, records, 1)
				if wanted {
					if m.failed[b.key] = records == nil; records != nil {
						m.results[b.key] = records
					}
					m.cut()
				}
			},
			"tell": func(*rapid.T) {
				for owner := range m.s.changed {
					m.look(owner)
				}
				clear(m.s.changed)
			},
			"": m.check,
		})
	})
}

// cut makes the model forget addresses that the schedule has left out: they come again with the next look-up.
func (m *scheduleModel) cut() {
	for k, want := range m.results {
		if got := m.s.found(k.account, k.name); got.Degraded && len(got.Records) < len(want) {
			m.results[k] = want[:len(got.Records)]
			m.failed[k] = true
		}
	}
}

// Guarantee: an account whose names take for ever to be looked up takes none of the turns of another account.
func TestSlowNamesDelayNoOtherAccount(t *testing.T) {
	s := newSchedule(defaultLimits())
	var slow []Name
	for i := range 10_000 {
		slow = append(slow, Name{Host: fmt.Sprint(i)})
	}
	s.want(0, balance.Name{Account: "slow"}, time.Second, slow)
	if n := len(s.begin(0)); n != MaxAccountRunning {
		t.Fatalf("got %d look-ups of one account; want %d", n, MaxAccountRunning)
	}
	for i := range 3 {
		account := fmt.Sprint(i)
		s.want(0, balance.Name{Account: account}, time.Second, slow[:1])
		if list := s.begin(0); len(list) != 1 || list[0].of.id != account {
			t.Errorf("got %d look-ups for account %s; want one at once", len(list), account)
		}
	}
}

// Guarantee: an account whose names have as many addresses as there may be, for as many targets as there may be, has no more than its
// bound, and leaves the others theirs.
func TestAddressesOfAccounts(t *testing.T) {
	s := newSchedule(limits{running: 1, accountRunning: 1, extra: MaxExtra, accountExtra: MaxAccountExtra})
	var many []Record
	for i := range MaxRecords {
		many = append(many, Record{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Weight: 1})
	}
	look := func(account string, names ...Name) {
		s.want(0, balance.Name{Account: account}, time.Second, names)
		for list := s.begin(0); len(list) > 0; list = s.begin(0) {
			s.end(0, list[0], many, 1)
		}
	}
	var different []Name
	for i := range 10_000 {
		different = append(different, Name{Host: fmt.Sprint(i)})
	}
	look("different", different...)
	look("same", slices.Repeat([]Name{{Host: "1"}}, 10_000)...)
	look("one", Name{Host: "1"})
	for account, want := range map[string]int{"different": MaxAccountExtra, "same": MaxAccountExtra, "one": MaxRecords - 1} {
		if got := s.accounts[account].extra; got > want || got < want-10_000 || account == "one" && got != want {
			t.Errorf("account %s has %d addresses beside the first of each target; want at most %d", account, got, want)
		}
	}
	for _, n := range different {
		if len(s.found("different", n).Records) == 0 {
			t.Fatalf("%+v has no address", n)
		}
	}
}

// Guarantee: the queries of an account, of which SRV records need many, come at a bounded rate, and no other account waits for them.
func TestQueriesOfAnAccountAreBounded(t *testing.T) {
	l := defaultLimits()
	l.running, l.accountRunning = 1000, 500
	s := newSchedule(l)
	var names []Name
	for i := range 10_000 {
		names = append(names, Name{Host: fmt.Sprint(i)})
	}
	s.want(0, balance.Name{Account: "many"}, time.Second, names)
	queries, turns := 0, 0
	const step, length = 10 * time.Millisecond, time.Minute
	for now := time.Duration(0); now < length; now += step {
		if now == length/2 {
			s.want(now, balance.Name{Account: "other"}, time.Hour, names[:1])
		}
		for _, e := range s.begin(now) {
			if e.of.id == "other" {
				turns++
			} else {
				queries += 3
			}
			s.end(now, e, []Record{{Weight: 1}}, 3)
		}
		if now == length/2 && turns != 1 {
			t.Errorf("another account got %d look-ups at once; want 1", turns)
		}
	}
	if most, least := 100+3+6_000, 5_900; queries > most || queries < least {
		t.Errorf("got %d queries in a minute; want %d to %d", queries, least, most)
	}
}
