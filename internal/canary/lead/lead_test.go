package lead

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/traffic"
)

// memory is a Store, and Control of the canaries in it.
type memory struct {
	lead     canary.Lead
	canaries map[string]*canary.Canary
	rows     map[int64]canary.CountRow
	last     int64
	steps    map[string]canary.StoredStep
	lists    map[string][]byte
	traffic  []traffic.Chunk
	broken   error             // of the traffic
	shared   map[string]string // buckets of keys
	read     []int             // sizes of what was read in each turn
	judged   []string          // canaries, with what was decided
	refused  map[string]error  // errors of JudgeCanary, by canary
}

func newMemory() *memory {
	return &memory{
		canaries: map[string]*canary.Canary{}, rows: map[int64]canary.CountRow{}, steps: map[string]canary.StoredStep{}, lists: map[string][]byte{},
		shared: map[string]string{}, refused: map[string]error{},
	}
}

func (m *memory) TakeCanaryLead(_ context.Context, process string) (canary.Lead, bool, error) {
	if m.lead.Claimant == "" {
		m.lead = canary.Lead{Claimant: process, Epoch: m.lead.Epoch + 1}
	}
	return m.lead, m.lead.Claimant == process, nil
}

func (m *memory) CanaryCountsEnd(context.Context) (int64, error) { return m.last, nil }

func (m *memory) ListCanaryCounts(_ context.Context, after int64, limit int) ([]canary.Listed, error) {
	return m.find(limit, func(seq int64, _ string) bool { return seq > after })
}

func (m *memory) CanaryCountsOf(_ context.Context, canaryID string, after, until int64, limit int) ([]canary.Listed, error) {
	return m.find(limit, func(seq int64, of string) bool { return of == canaryID && seq > after && seq <= until })
}

func (m *memory) find(limit int, is func(seq int64, canaryID string) bool) (list []canary.Listed, _ error) {
	for _, seq := range slices.Sorted(maps.Keys(m.rows)) {
		if r := m.rows[seq]; len(list) < limit && is(seq, r.CanaryID) {
			list = append(list, canary.Listed{Seq: seq, CanaryID: r.CanaryID, Number: r.Number, Size: len(r.Data)})
		}
	}
	return list, nil
}

func (m *memory) ReadCanaryCounts(_ context.Context, seqs []int64, f func(int64, *canary.CountRow) error) error {
	size := 0
	for _, seq := range seqs {
		if r, is := m.rows[seq]; is {
			size += len(r.Data)
			if err := f(seq, &r); err != nil {
				return err
			}
		}
	}
	m.read = append(m.read, size)
	return nil
}

func (m *memory) CanaryStep(_ context.Context, canaryID string) (*canary.StoredStep, error) {
	if s, is := m.steps[canaryID]; is {
		return &s, nil
	}
	return nil, nil //nolint:nilnil // as Store says
}

func (m *memory) holds(l canary.Lead) error {
	if l != m.lead {
		return fault.New(fault.Conflict, "another process leads")
	}
	return nil
}

func (m *memory) FoldCanaryStep(_ context.Context, l canary.Lead, s *canary.StoredStep, gone []int64, _ int64) error {
	if err := m.holds(l); err != nil {
		return err
	}
	m.steps[s.CanaryID] = *s
	for _, seq := range gone {
		delete(m.rows, seq)
	}
	return nil
}

func (m *memory) TrimCanaryCounts(_ context.Context, l canary.Lead, _ int) (bool, error) {
	return false, m.holds(l)
}

func (m *memory) running(after string) (list []canary.Canary) {
	for _, canaryID := range slices.Sorted(maps.Keys(m.canaries)) {
		if c := m.canaries[canaryID]; canaryID > after && c.State == canary.Running {
			list = append(list, *c)
		}
	}
	return list
}

func (m *memory) UndecidedCanaries(_ context.Context, after string, limit int) (list []canary.Canary, _ error) {
	for _, c := range m.running(after) {
		if _, is := m.lists[c.ID]; !is && len(list) < limit {
			list = append(list, c)
		}
	}
	return list, nil
}

func (m *memory) LeaveOutCallers(_ context.Context, l canary.Lead, canaryID string, list []byte) error {
	if err := m.holds(l); err != nil {
		return err
	}
	m.lists[canaryID] = list
	return nil
}

func (m *memory) SharedBuckets(_ context.Context, _ string, keyIDs []string) (map[string]string, error) {
	shared := map[string]string{}
	for _, keyID := range keyIDs {
		if bucket, is := m.shared[keyID]; is {
			shared[keyID] = bucket
		}
	}
	return shared, nil
}

func (m *memory) ReadTraffic(_ context.Context, q traffic.ChunkQuery, f func(*traffic.Chunk) error) error {
	for i := range m.traffic {
		if c := &m.traffic[i]; c.AccountID == q.AccountID && c.Part == q.Part && c.Start >= q.From && c.Start < q.Before {
			if err := f(c); err != nil {
				return err
			}
		}
	}
	return m.broken
}

func (m *memory) RunningCanaries(_ context.Context, after string, limit int) ([]canary.Canary, error) {
	list := m.running(after)
	return list[:min(limit, len(list))], nil
}

func (m *memory) JudgeCanary(_ context.Context, canaryID string, number int, l canary.Lead, p canary.Progress, ran canary.Ran, d canary.Decision) error {
	c := m.canaries[canaryID]
	if err := cmp.Or(m.holds(l), m.refused[canaryID]); err != nil {
		return err
	}
	if c.Number != number || c.State != canary.Running {
		return fault.New(fault.Conflict, "the canary has gone on")
	}
	c.Progress = slices.Clone(c.Progress)
	c.Progress[len(c.Progress)-1] = p
	c.Since, c.Ran, c.Explanation = ran.Until, ran.For, d.Explanation
	m.judged = append(m.judged, fmt.Sprint(canaryID, " ", d.Action, " ", d.Reason))
	switch d.Action {
	case canary.Advance:
		c.Advance(c.Since)
	case canary.Abort:
		c.State = canary.Aborted
	case canary.Pause:
		c.State = canary.Paused
	}
	return nil
}

// harness is a Leader with virtual time.
type harness struct {
	*testing.T
	*Leader
	store *memory
	now   time.Time
}

func newHarness(t *testing.T) *harness {
	h := &harness{T: t, store: newMemory(), now: time.Unix(1e9, 0).UTC()}
	h.Leader = h.process("one")
	return h
}

func (h *harness) process(name string) *Leader {
	l, err := New(Config{Store: h.store, Control: h.store, Process: name, Now: func() time.Time { return h.now }})
	if err != nil {
		h.Fatal(err)
	}
	return l
}

// canary starts a canary of an account.
func (h *harness) canary(account string) *canary.Canary {
	moreThan := 1.0
	c := &canary.Canary{
		ID: fmt.Sprintf("can_%s_%03d", account, len(h.store.canaries)), AccountID: account, GatewayID: id.New(id.Gateway), State: canary.Running, Number: 1, Since: h.now, CreatedAt: h.now,
		Plan:     canary.Plan{Upstream: "next", Other: "default", Steps: []gateway.Percent{100, 500}, Hold: "10m", MinRequests: 100, MoreThan: &moreThan, Before: h.now},
		Progress: []canary.Progress{{Step: 1, Number: 1, Since: h.now}},
	}
	h.store.canaries[c.ID] = c
	return c
}

// count stores that next and other had requests, of which some were bad, each of a number of callers.
func (h *harness) count(c *canary.Canary, next, other canary.Counts, callers int) {
	var t canary.Tally
	for side, n := range map[canary.Side]canary.Counts{canary.Next: next, canary.Other: other} {
		for i := range uint64(callers) {
			all := uint64(callers)
			t.Add(side, i*0x9e3779b97f4a7c15, canary.Counts{Requests: n.Requests*(i+1)/all - n.Requests*i/all, Bad: n.Bad*(i+1)/all - n.Bad*i/all})
		}
	}
	data, _ := t.MarshalBinary()
	h.store.last++
	h.store.rows[h.store.last] = canary.CountRow{CanaryID: c.ID, Number: c.Number, At: h.now, Data: data}
}

func (h *harness) look(l *Leader) {
	h.Helper()
	if err := l.Look(h.Context()); err != nil {
		h.Fatal(err)
	}
}

// Guarantee: a step is judged by what nodes have counted and by the time that it has run; progress is stored only when it differs;
// what was decided is done once.
func TestSteps(t *testing.T) {
	h := newHarness(t)
	good, bad := h.canary("a"), h.canary("b")
	for tick := range 200 {
		h.now = h.now.Add(Interval)
		h.count(good, canary.Counts{Requests: 10}, canary.Counts{Requests: 1000, Bad: 1}, 10)
		if tick == 3 {
			h.count(bad, canary.Counts{Requests: 40, Bad: 20}, canary.Counts{Requests: 1000, Bad: 1}, 10)
		}
		h.look(h.Leader)
		if tick == 0 {
			n := len(h.store.judged)
			h.look(h.Leader)
			if len(h.store.judged) != n {
				t.Errorf("judged %v, want nothing new without requests", h.store.judged)
			}
		}
	}
	done := slices.DeleteFunc(slices.Clone(h.store.judged), func(s string) bool { return strings.HasSuffix(s, " 0 ") })
	if want := []string{bad.ID + " 2 errors", good.ID + " 1 "}; !slices.Equal(done, want) || h.Running() != 1 {
		t.Errorf("%v were decided, want %v; %d run", done, want, h.Running())
	}
	if p := good.Progress; len(p) != 2 || p[0].Next.Requests != 1200 || p[1].Next.Requests != 800 || p[0].Other.Bad != 120 || p[1].Number != 2 {
		t.Errorf("got the progress %+v, want 1,200 requests of the first step, and 800 of the next", p)
	}
	if !strings.Contains(bad.Explanation, "20 of 40 failed on next") {
		t.Errorf("got the explanation %q", bad.Explanation)
	}
}

// pass lets time pass, in which the process looks.
func (h *harness) pass(d time.Duration) {
	h.Helper()
	for ; d > 0; d -= Interval {
		h.now = h.now.Add(Interval)
		h.look(h.Leader)
	}
}

// Guarantee: a time in which nobody judges is not time of a step, apart from what it takes until another process leads: when all nodes
// come back after an hour, or the clock jumps by an hour, a step does not end that nodes have not counted for so long. Time without
// requests is time of it, also if another process goes on.
func TestTimeThatNobodyJudges(t *testing.T) {
	h := newHarness(t)
	c := h.canary("a")
	h.count(c, canary.Counts{Requests: 500}, canary.Counts{Requests: 500}, 10)
	h.pass(3 * time.Minute)
	ran := func(want time.Duration) {
		t.Helper()
		h.pass(noteEvery) // in which it is stored
		if got := c.Ran + h.now.Sub(c.Since); c.Step != 0 || got != want {
			t.Fatalf("the step %d has run for %v, want %v of the first", c.Step+1, got, want)
		}
	}
	ran(4 * time.Minute)
	h.now = h.now.Add(time.Hour)
	before := 4*time.Minute + canary.MostIdle + noteEvery - Interval // the first look is after the time that is left out
	ran(before)
	h.Leader = h.process("one")
	h.now = h.now.Add(time.Minute)
	ran(before + time.Minute + noteEvery)
	h.now = h.now.Add(time.Hour)
	paused := *c // before anybody judges again
	if paused.Pause(h.now); paused.Ran != c.Ran+canary.MostIdle {
		t.Errorf("paused after an hour, the step has run for %v, want %v and %v", paused.Ran, c.Ran, canary.MostIdle)
	}
	h.now = h.now.Add(-2 * time.Hour) // set back
	h.pass(3 * time.Minute)
	if c.Step != 1 {
		t.Error("after the clock was set back, the step has not ended")
	}
}

// Guarantee: while it is paused, the time of a step stands still, and with a resume it goes on with what it had.
func TestPause(t *testing.T) {
	h := newHarness(t)
	c := h.canary("a")
	h.pass(9 * time.Minute)
	h.count(c, canary.Counts{Requests: 500}, canary.Counts{Requests: 500}, 10)
	h.look(h.Leader)
	c.Pause(h.now)
	h.now = h.now.Add(time.Hour)
	h.look(h.Leader)
	c.Resume(h.now)
	h.count(c, canary.Counts{Requests: 1}, canary.Counts{Requests: 1}, 1)
	h.now = h.now.Add(59 * time.Second)
	h.look(h.Leader)
	if c.Step != 0 || c.Progress[0].Next.Requests != 501 {
		t.Fatalf("got step %d with %+v, want that the first goes on with 501", c.Step, c.Progress[0])
	}
	h.now = h.now.Add(time.Second)
	h.look(h.process("one"))
	if c.Step != 1 {
		t.Error("after 10 minutes the step has not ended")
	}
}

// Guarantee: counts of a step that the leader has not heard of yet count when it has; those of steps before never do, and go.
func TestCountsOfOtherSteps(t *testing.T) {
	h := newHarness(t)
	c := h.canary("a")
	h.look(h.Leader)
	c.Number = 2
	h.count(c, canary.Counts{Requests: 3}, canary.Counts{Requests: 3}, 1)
	c.Number = 1
	h.look(h.Leader)
	if got := c.Progress[0].Next.Requests; got != 0 {
		t.Errorf("got %d requests of the next number, want 0", got)
	}
	c.Number = 2
	h.look(h.Leader)
	if got := c.Progress[0].Next.Requests; got != 3 {
		t.Errorf("got %d requests, want 3", got)
	}
	c.Advance(h.now)
	c.Number = 2
	h.count(c, canary.Counts{Requests: 5}, canary.Counts{Requests: 5}, 1)
	c.Number = 3
	h.count(c, canary.Counts{Requests: 7}, canary.Counts{Requests: 7}, 1)
	h.look(h.Leader)
	h.now = h.now.Add(foldEvery)
	h.look(h.Leader)
	if got := c.Progress[1].Next.Requests; got != 7 || len(h.store.rows) != 0 {
		t.Errorf("got %d requests of the second step, and %d rows are left; want 7 and none", got, len(h.store.rows))
	}
}

// Guarantee: a process that leads no more changes nothing, and the next one goes on with what was counted. It removes rows that it finds
// at once, so that an account whose canaries pause and resume leaves no more of them.
func TestOneLeads(t *testing.T) {
	h := newHarness(t)
	c := h.canary("a")
	h.count(c, canary.Counts{Requests: 40}, canary.Counts{Requests: 40}, 10)
	h.look(h.Leader)
	other := h.process("two")
	h.look(other)
	if other.Running() != 0 || h.Running() != 1 {
		t.Errorf("%d and %d canaries are judged, want 1 by the first process", h.Running(), other.Running())
	}
	if err := other.LeaveOut(t.Context()); err != nil || len(h.store.lists) != 0 {
		t.Errorf("got %d lists of a process that does not lead, and the error %v", len(h.store.lists), err)
	}
	h.store.lead.Claimant = "" // it is not live any more
	h.now = h.now.Add(time.Hour)
	h.count(c, canary.Counts{Requests: 1}, canary.Counts{Requests: 1}, 1)
	h.look(other)
	if c.Progress[0].Next.Requests != 41 || other.Running() != 1 || len(h.store.rows) != 0 {
		t.Errorf("got %+v, and %d rows are left; want 41 requests, and none", c.Progress[0].Next, len(h.store.rows))
	}
	h.look(h.Leader)
	if h.Running() != 0 || h.room.Taken() != 0 || len(h.states) != 0 {
		t.Errorf("the first process still judges %d canaries", h.Running())
	}
}

// Guarantee: an error of one canary, and counts that cannot be read, do not keep others from being judged; the next look tries
// again.
func TestOneFails(t *testing.T) {
	h := newHarness(t)
	first, second := h.canary("a"), h.canary("b")
	h.count(first, canary.Counts{Requests: 40}, canary.Counts{Requests: 40}, 10)
	h.count(second, canary.Counts{Requests: 40}, canary.Counts{Requests: 40}, 10)
	h.store.last++
	h.store.rows[h.store.last] = canary.CountRow{CanaryID: second.ID, Number: 1, Data: []byte("damaged")}
	h.store.steps[second.ID] = canary.StoredStep{CanaryID: second.ID, First: 1, Data: []byte("damaged")}
	h.store.refused[first.ID] = errors.New("refused")
	if err := h.Look(t.Context()); !errors.Is(err, h.store.refused[first.ID]) {
		t.Errorf("got %v, want the error of the first", err)
	}
	if second.Progress[0].Next.Requests != 40 || first.Progress[0].Next.Requests != 0 {
		t.Errorf("got %+v and %+v, want 40 requests of the second", first.Progress[0].Next, second.Progress[0].Next)
	}
	delete(h.store.refused, first.ID)
	h.look(h.Leader)
	if first.Progress[0].Next.Requests != 40 {
		t.Errorf("got %+v, want 40 requests", first.Progress[0].Next)
	}
}

// Guarantee: a look reads a bounded number of bytes, accounts take turns, and so do the canaries of an account: what one account has to
// read does not hold up another one. A canary of which something is not read yet is not advanced. Steps are stored before there
// are too many rows to remove.
func TestAccountsTakeTurns(t *testing.T) {
	h := newHarness(t)
	var large []*canary.Canary
	for range 10 {
		c := h.canary("large")
		large = append(large, c)
		for range 40 {
			h.count(c, canary.Counts{Requests: 5_000}, canary.Counts{Requests: 5_000}, 5_000)
		}
	}
	small := h.canary("small")
	h.count(small, canary.Counts{Requests: 100}, canary.Counts{Requests: 100}, 10)
	for _, c := range h.store.canaries {
		c.Ran = 10 * time.Minute
	}
	h.look(h.Leader)
	if small.Step != 1 {
		t.Error("the canary of another account has not advanced at the first look")
	}
	bytes := 0
	for _, n := range h.store.read {
		bytes += n
	}
	if bytes < MaxBytes/2 || bytes > MaxBytes+MaxBytes/2 {
		t.Errorf("%d bytes were read, want about %d", bytes, MaxBytes)
	}
	counted := map[uint64]int{}
	for _, c := range large {
		if c.Step != 0 {
			t.Fatal("a canary has advanced before everything was read")
		}
		counted[c.Progress[0].Next.Requests/5_000]++
	}
	if len(counted) > 4 {
		t.Errorf("rows that were read of canaries: %v, want about the same of each", counted)
	}
	for range 40 {
		h.look(h.Leader)
	}
	for _, c := range large {
		if c.Step != 1 || c.Progress[0].Next.Requests != 200_000 {
			t.Fatalf("got %+v in step %d, want everything", c.Progress[0].Next, c.Step)
		}
	}

	many := h.canary("many")
	for range foldRows + 100 {
		h.count(many, canary.Counts{Requests: 1}, canary.Counts{Requests: 1}, 1)
	}
	h.look(h.Leader)
	if got := many.Progress[0].Next.Requests; got != foldRows || len(h.states[many.ID].added) != 0 {
		t.Errorf("%d rows were read, and %d wait to be removed; want %d and 0", got, len(h.states[many.ID].added), foldRows)
	}
	h.look(h.Leader)
	if got := many.Progress[0].Next.Requests; got != foldRows+100 {
		t.Errorf("%d rows were read, want all", got)
	}
}

// Guarantee: a look stores the progress of a bounded number of canaries, in turns.
func TestProgressTakesTurns(t *testing.T) {
	h := newHarness(t)
	for range maxProgress + 50 {
		h.count(h.canary("a"), canary.Counts{Requests: 1}, canary.Counts{Requests: 1}, 1)
	}
	for _, want := range []int{maxProgress, maxProgress + 50} {
		h.now = h.now.Add(Interval)
		h.look(h.Leader)
		seen := map[string]bool{}
		for _, s := range h.store.judged {
			seen[s] = true
		}
		if len(seen) != want {
			t.Errorf("the progress of %d canaries was stored, want %d", len(seen), want)
		}
	}
}

// keyTraffic adds traffic of keys of a canary.
func (h *harness) keyTraffic(c *canary.Canary, at time.Time, entries ...*traffic.Entry) {
	w := traffic.NewWriter(traffic.Chunk{AccountID: c.AccountID, Part: traffic.Keys, Tier: traffic.Minutes, Start: at.Unix() / 60 * 60})
	slices.SortFunc(entries, func(a, b *traffic.Entry) int { return slices.Compare(a.Key[:], b.Key[:]) })
	for _, e := range entries {
		w.Entry(e)
	}
	h.store.traffic = append(h.store.traffic, w.Chunks()...)
}

// Guarantee (section 8): callers are left out whose share of bad requests on the canary's routes was above more_than in the hour
// before; the keys of a rotation are one caller; nobody without a key is left out; if there are too many, those with most bad
// requests are.
func TestWhoIsLeftOut(t *testing.T) {
	h := newHarness(t)
	c := h.canary("a")
	route := id.New(id.Route)
	c.Plan.Routes = []string{route}
	of := traffic.Identity{Status: 500}
	of.Gateway, _ = id.Parse(id.Gateway, c.GatewayID)
	of.Route, _ = id.Parse(id.Route, route)
	key := func() (u [16]byte) {
		u, _ = id.Parse(id.Key, id.New(id.Key))
		return u
	}
	entry := func(key [16]byte, requests, bad int64) *traffic.Entry {
		e := &traffic.Entry{Identity: of, Counts: traffic.Counts{Requests: requests, UpstreamErrors: bad}}
		e.Key = key
		return e
	}
	bad, good, rotated, first, elsewhere, early := key(), key(), key(), key(), key(), key()
	h.store.shared[id.Format(id.Key, rotated)] = id.Format(id.Key, first)
	other := entry(elsewhere, 10, 10)
	other.Route = [16]byte{1}
	h.keyTraffic(c, h.now.Add(-30*time.Minute), entry(bad, 50, 0), entry(good, 100, 1), entry(rotated, 100, 2), other, entry([16]byte{}, 10, 10))
	h.keyTraffic(c, h.now.Add(-10*time.Minute), entry(bad, 50, 2), entry(first, 10, 0), entry(good, 1, 0))
	h.keyTraffic(c, h.now.Add(-2*time.Hour), entry(early, 10, 10))
	h.look(h.Leader)
	leftOut := func(c *canary.Canary) []uint64 {
		t.Helper()
		if err := h.LeaveOut(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := canary.DecodeCallers(h.store.lists[c.ID])
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := []uint64{balance.HashValue(bad[:]), balance.HashValue(first[:])}
	slices.Sort(want)
	if got := leftOut(c); !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}

	without := h.canary("a")
	without.Plan.Routes, without.GatewayID, without.Plan.MoreThan = c.Plan.Routes, c.GatewayID, nil
	if got := leftOut(without); len(got) != 0 {
		t.Errorf("without abort.errors %x are left out", got)
	}

	many := h.canary("many")
	many.Plan.Routes, many.GatewayID = c.Plan.Routes, c.GatewayID
	var entries []*traffic.Entry
	worst := map[uint64]bool{}
	for i := range int64(canary.MaxLeftOut + 100) {
		k := key()
		e := entry(k, 100, 2)
		if i < canary.MaxLeftOut {
			e.UpstreamErrors, worst[balance.HashValue(k[:])] = 3, true
		}
		entries = append(entries, e)
	}
	h.keyTraffic(many, h.now.Add(-10*time.Minute), entries...)
	got := leftOut(many)
	for _, caller := range got {
		delete(worst, caller)
	}
	if len(got) != canary.MaxLeftOut || len(worst) != 0 {
		t.Errorf("got %d callers, without %d of the worst; want %d", len(got), len(worst), canary.MaxLeftOut)
	}
}

// Guarantee: reports that cannot be read delay a canary for a while, and no other one; then it leaves out nobody.
func TestReportsCannotBeRead(t *testing.T) {
	h := newHarness(t)
	broken, other := h.canary("a"), h.canary("b")
	other.Plan.MoreThan = nil // needs no reports
	h.store.broken = errors.New("damaged")
	h.look(h.Leader)
	for range listTries - 1 {
		if err := h.LeaveOut(t.Context()); !errors.Is(err, h.store.broken) {
			t.Fatalf("got %v", err)
		}
	}
	if h.store.lists[broken.ID] != nil || h.store.lists[other.ID] == nil {
		t.Error("the other canary waits, or this one does not")
	}
	if err := h.LeaveOut(t.Context()); err != nil || h.store.lists[broken.ID] == nil {
		t.Errorf("got %v, want that the canary leaves out nobody", err)
	}
}
