package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// quotaModel is a simple model of quotas in maps.
type quotaModel struct {
	h         *harness
	account   *account.Account
	now       time.Time
	keys      []ratelimit.QuotaKey
	windows   map[ratelimit.QuotaKey][]*modelWindow
	processes []*modelProcess
	named     int               // processes until now
	told      map[toldQuota]int // number of events
}

// modelWindow has the figures of each process, also of those that have crashed.
type modelWindow struct {
	start, end time.Time
	shares     map[string]ratelimit.QuotaFigures
	grants     int64
	told       []int
}

// modelProcess is a process with what it knows of quotas.
type modelProcess struct {
	name    string
	claimed time.Time // the last time
	known   map[ratelimit.QuotaKey]knownQuota
}

type knownQuota struct {
	window time.Time
	own    ratelimit.QuotaFigures
}

type toldQuota struct {
	limit   string
	window  time.Time
	percent int
}

// Guarantee: quotas behave like the model for any sequence of claims of several processes, with lost answers, crashes,
// grants, changes of time zones and plans, a clock that goes on or back, and retention.
func testQuotaModel(h *harness) {
	const enough = 15
	accounts := 0
	rapid.Check(h, func(t *rapid.T) {
		if accounts++; accounts > enough {
			return
		}
		m := &quotaModel{h: h, account: h.insertAccount(fmt.Sprint("quotas ", accounts)), now: epoch(), windows: map[ratelimit.QuotaKey][]*modelWindow{}, told: map[toldQuota]int{}}
		for i, unit := range []calendar.Unit{calendar.Day, calendar.Week, calendar.Month, calendar.Total} {
			m.keys = append(m.keys, quotaKey(m.account, fmt.Sprint("limit-", i), unit))
		}
		for range 3 {
			m.processes = append(m.processes, m.start())
		}
		t.Repeat(map[string]func(*rapid.T){
			"claim": m.claim, "claim 2": m.claim, "claim 3": m.claim, "wait": m.wait, "go back": m.goBack, "grant": m.grant, "crash": m.crash, "trim": m.trim, "": m.check,
		})
		m.checkEvents(t)
	})
}

// quotaKey returns a quota of a subject of the account.
func quotaKey(a *account.Account, limit string, unit calendar.Unit) ratelimit.QuotaKey {
	return ratelimit.QuotaKey{QuotaName: ratelimit.QuotaName{AccountID: a.ID, Limit: limit, Meter: ratelimit.Requests, Unit: unit}, Subject: "own_1"}
}

func (m *quotaModel) start() *modelProcess {
	m.named++
	return &modelProcess{name: fmt.Sprintf("%s-%d", m.account.ID, m.named), known: map[ratelimit.QuotaKey]knownQuota{}}
}

func (m *quotaModel) calendar(t *rapid.T, unit calendar.Unit) calendar.Calendar {
	zone, err := time.LoadLocation(rapid.SampledFrom([]string{"UTC", "UTC", "Asia/Kolkata", "Pacific/Apia", "America/New_York"}).Draw(t, "zone"))
	if err != nil {
		t.Fatal(err)
	}
	return calendar.Calendar{Unit: unit, Zone: zone, Anchor: rapid.SampledFrom([]int{1, 1, 5, 28}).Draw(t, "anchor")}
}

// window returns the window that has the present time.
func (m *quotaModel) window(k ratelimit.QuotaKey, c calendar.Calendar) *modelWindow {
	w := &modelWindow{shares: map[string]ratelimit.QuotaFigures{}}
	w.start, w.end = c.Window(m.now)
	for _, old := range m.windows[k] {
		switch {
		case !old.start.After(m.now) && old.end.After(m.now):
			return old
		case old.start.After(m.now) && old.start.Before(w.end):
			w.end = old.start
		case !old.start.After(m.now) && old.end.After(w.start):
			w.start = old.end
		}
	}
	m.windows[k] = append(m.windows[k], w)
	return w
}

func (w *modelWindow) all() (sum ratelimit.QuotaFigures) {
	for _, f := range w.shares {
		sum.Taken, sum.Reserved = sum.Taken+f.Taken, sum.Reserved+f.Reserved
	}
	return sum
}

// tell returns the percentages of which nobody has been told yet.
func (m *quotaModel) tell(c *ratelimit.QuotaClaim, w *modelWindow) (passed []int) {
	all := w.all()
	for _, percent := range c.Terms.WarnAt {
		if !slices.Contains(w.told, percent) && (all.Taken-all.Reserved)*100 >= (c.Terms.Count+w.grants)*int64(percent) {
			passed = append(passed, percent)
			w.told = append(w.told, percent)
			m.told[toldQuota{c.Limit, w.start, percent}]++
		}
	}
	return passed
}

// expect returns what the claim is answered with.
func (m *quotaModel) expect(p *modelProcess, c ratelimit.QuotaClaim) ratelimit.QuotaClaim {
	present := m.window(c.QuotaKey, c.Calendar)
	for _, w := range m.windows[c.QuotaKey] {
		if w.start.Equal(c.Window) {
			w.shares[p.name] = c.Own
			if w != present {
				m.tell(&c, w)
			}
		}
	}
	all, free := present.all(), c.Terms.Count+present.grants
	if c.Terms.Allow {
		free = 1 << 53
	}
	ahead := max(0, max(1, c.Terms.Count/100)-all.Reserved) // what crashes may lose
	c.Granted = max(0, min(c.Want, free-all.Taken, c.Need+ahead))
	own := present.shares[p.name]
	own.Taken, own.Reserved = own.Taken+c.Granted, own.Reserved+c.Granted
	present.shares[p.name] = own
	c.Passed = m.tell(&c, present)
	c.Share.Own = own
	c.Answer = ratelimit.QuotaWindow{Start: present.start, End: present.end, All: present.all(), Grants: present.grants, Told: slices.Clone(present.told)}
	return c
}

// claimOf returns a claim of a process, which has used some of what it had.
func (m *quotaModel) claimOf(t *rapid.T, p *modelProcess, k ratelimit.QuotaKey) ratelimit.QuotaClaim {
	want := rapid.Int64Range(0, 40).Draw(t, "want")
	c := ratelimit.QuotaClaim{
		QuotaKey: k, Calendar: m.calendar(t, k.Unit), Want: want, Need: rapid.Int64Range(0, want).Draw(t, "need"),
		Terms: &ratelimit.QuotaTerms{
			Plan: "free", Count: rapid.SampledFrom([]int64{1, 5, 50, 300, 3000}).Draw(t, "count"), Allow: rapid.IntRange(0, 4).Draw(t, "allow") == 0,
			WarnAt: rapid.SampledFrom([][]int{nil, {50}, {80, 100}, {1, 99, 150}}).Draw(t, "warn at"),
		},
	}
	known, is := p.known[k]
	if !is || rapid.IntRange(0, 9).Draw(t, "forgotten") == 0 {
		return c
	}
	c.Window, c.Own = known.window, known.own
	c.Own.Reserved -= rapid.Int64Range(0, c.Own.Reserved).Draw(t, "used")
	back := rapid.Int64Range(0, c.Own.Reserved).Draw(t, "given back")
	c.Own.Taken, c.Own.Reserved = c.Own.Taken-back, c.Own.Reserved-back
	if c.Terms.Allow {
		c.Own.Taken += rapid.Int64Range(0, 3).Draw(t, "passed without a claim")
	}
	return c
}

func (m *quotaModel) claim(t *rapid.T) {
	p := rapid.SampledFrom(m.processes).Draw(t, "process")
	var claims []ratelimit.QuotaClaim
	for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom(m.keys), 1, 3, func(k ratelimit.QuotaKey) string { return k.Limit }).Draw(t, "quotas") {
		claims = append(claims, m.claimOf(t, p, k))
	}
	got := m.send(t, p, claims)
	if rapid.IntRange(0, 3).Draw(t, "lost answer") == 0 {
		again := m.send(t, p, claims)
		for i := range again {
			if claims[i].Window.Equal(got[i].Answer.Start) {
				same(t, "figures after a repeated claim", again[i].Answer.All, got[i].Answer.All)
			}
		}
		got = again
	}
	for i := range got {
		p.known[got[i].QuotaKey] = knownQuota{got[i].Answer.Start, got[i].Share.Own}
	}
}

// send sends claims to the store, and compares the answers with those of the model.
func (m *quotaModel) send(t *rapid.T, p *modelProcess, claims []ratelimit.QuotaClaim) []ratelimit.QuotaClaim {
	got := slices.Clone(claims)
	if _, err := m.h.ClaimQuotas(m.h.Context(), p.name, m.now, got); err != nil {
		t.Fatal(err)
	}
	p.claimed = m.now
	for i := range claims {
		same(t, fmt.Sprintf("the answer to %s at %v", p.name, m.now), got[i], m.expect(p, claims[i]))
	}
	return got
}

func (m *quotaModel) wait(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int{1, 60, 3600, 20 * 3600, 200 * 3600}).Draw(t, "seconds")) * time.Second)
}

func (m *quotaModel) goBack(t *rapid.T) {
	m.now = m.now.Add(-time.Duration(rapid.SampledFrom([]int{1, 3600, 30 * 3600}).Draw(t, "seconds")) * time.Second)
}

func (m *quotaModel) grant(t *rapid.T) {
	k := rapid.SampledFrom(m.keys).Draw(t, "quota")
	c, units := m.calendar(t, k.Unit), rapid.Int64Range(1, 60).Draw(t, "units")
	g := plan.Grant{ID: id.New(id.Grant), Plan: "free", Units: units, CreatedAt: m.now}
	m.h.update(func(ctx context.Context, tx control.Tx) error { return tx.GrantQuota(ctx, k, c, m.now, &g) })
	w := m.window(k, c)
	w.grants += units
	same(t, "the window of a grant", []time.Time{g.WindowStart, g.WindowEnd}, []time.Time{w.start, w.end})
}

func (m *quotaModel) crash(t *rapid.T) {
	m.processes[rapid.IntRange(0, len(m.processes)-1).Draw(t, "process")] = m.start()
}

// trim removes old windows. The store may then forget processes that have claimed nothing since, so these have crashed.
func (m *quotaModel) trim(t *rapid.T) {
	ended := m.now.Add(-time.Duration(rapid.IntRange(0, 72).Draw(t, "hours")) * time.Hour)
	for i, p := range m.processes {
		if p.claimed.Before(ended.Add(2 * time.Hour)) {
			m.processes[i] = m.start()
		}
	}
	m.h.trimQuotas(ended)
	for k := range m.windows {
		m.windows[k] = slices.DeleteFunc(m.windows[k], func(w *modelWindow) bool { return w.end.Before(ended) })
	}
}

// trimQuotas trims in small steps.
func (h *harness) trimQuotas(ended time.Time) {
	h.Helper()
	for more := true; more; {
		h.update(func(ctx context.Context, tx control.Tx) (err error) {
			more, err = tx.TrimQuotas(ctx, ended, 2)
			return err
		})
	}
}

// check compares the windows.
func (m *quotaModel) check(t *rapid.T) {
	got := get(m.h, func(ctx context.Context, tx control.ReadTx) ([]control.StoredQuota, error) {
		return tx.QuotaWindows(ctx, m.account.ID, "own_1")
	})
	var want []control.StoredQuota
	for _, k := range m.keys {
		for _, w := range slices.SortedFunc(slices.Values(m.windows[k]), func(x, y *modelWindow) int { return x.start.Compare(y.start) }) {
			want = append(want, control.StoredQuota{QuotaKey: k, QuotaWindow: ratelimit.QuotaWindow{Start: w.start, End: w.end, All: w.all(), Grants: w.grants, Told: w.told}})
		}
	}
	same(t, "windows", got, want)
}

// checkEvents compares the events that were raised.
func (m *quotaModel) checkEvents(t *rapid.T) {
	got := map[toldQuota]int{}
	for _, e := range pages(t, m.h, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]event.Event, error) {
		return tx.Events(ctx, m.account.ID, control.EventFilter{Type: event.QuotaThreshold}, p)
	}, func(e *event.Event) string { return e.ID }) {
		var payload struct{ Data event.Threshold }
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			t.Fatal(err)
		}
		d := payload.Data
		got[toldQuota{d.Limit, d.WindowStart, d.Percent}]++
	}
	if !maps.Equal(got, m.told) {
		t.Fatalf("got the events %v, want %v", got, m.told)
	}
}
