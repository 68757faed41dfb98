package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/ratelimit"
)

// slotHarness is a database with processes whose nodes have leases of an hour.
type slotHarness struct{ *quotaHarness }

func newSlotHarness(t *testing.T) *slotHarness {
	return &slotHarness{&quotaHarness{newClusterHarness(t)}}
}

func (h *slotHarness) claim(process string, claims ...ratelimit.SlotClaim) []ratelimit.SlotClaim {
	h.Helper()
	if err := h.db.ClaimSlots(h.Context(), process, claims); err != nil {
		h.Fatal(err)
	}
	return claims
}

// endLease ends the lease of a node some time ago.
func (h *slotHarness) endLease(node string, ago time.Duration) {
	h.Helper()
	h.exec(`UPDATE nodes SET renewed = clock_timestamp() - interval '1 hour' - $1::bigint * interval '1 microsecond' WHERE name = $2`, ago.Microseconds(), node)
}

func (h *slotHarness) renew(node string) {
	h.Helper()
	h.exec(`UPDATE nodes SET renewed = clock_timestamp() WHERE name = $1`, node)
}

func (h *slotHarness) asked(process string) []int64 {
	h.Helper()
	parts, at, err := h.db.AskedSlots(h.Context(), process, 10)
	if err != nil || time.Since(at).Abs() > time.Minute {
		h.Fatal(at, err)
	}
	return parts
}

func slotClaim(name string, most, held, need int64) ratelimit.SlotClaim {
	return ratelimit.SlotClaim{Name: name, Part: 1, Most: most, Held: held, Need: need}
}

// granted returns what claims were granted.
func granted(claims []ratelimit.SlotClaim) (list []int64) {
	for i := range claims {
		list = append(list, claims[i].Granted)
	}
	return list
}

// slotModel is what rows the table must have, and which processes live.
type slotModel struct {
	h         *slotHarness
	most      int64
	processes []*slotProcess
	rows      map[slotID]int64
}

type slotProcess struct {
	node, name string
	counts     bool // it lives, or has ended less than two seconds ago
	lapsed     bool // its lease has ended: it admits nothing
	held       map[slotID]int64
}

type slotID struct {
	name, process string
	part          int64
}

// Guarantee: the store grants exactly what the processes that count leave free, for any sequence of claims of several
// processes, with lost answers and leases that end and begin; those that live never have more than the limit allows. A claim
// that is repeated changes nothing.
func TestSlotModel(t *testing.T) {
	h := newSlotHarness(t)
	runs, enough := 0, 25
	rapid.Check(t, func(t *rapid.T) {
		if runs++; runs > enough {
			return
		}
		m := &slotModel{h: h, most: rapid.SampledFrom([]int64{1, 2, 7, 40}).Draw(t, "most"), rows: map[slotID]int64{}}
		for i := range 3 {
			node := fmt.Sprintf("%d.%d", runs, i)
			m.processes = append(m.processes, &slotProcess{node: node, name: h.join(node, time.Hour), counts: true, held: map[slotID]int64{}})
		}
		t.Repeat(map[string]func(*rapid.T){"claim": m.claim, "claim 2": m.claim, "claim 3": m.claim, "end": m.end, "begin": m.begin, "trim": m.trim, "": m.check})
	})
}

func (m *slotModel) claim(t *rapid.T) {
	p := rapid.SampledFrom(m.processes).Draw(t, "process")
	if p.lapsed {
		return
	}
	var claims []ratelimit.SlotClaim
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y", "z"}), 1, 3, rapid.ID).Draw(t, "names") {
		id := slotID{m.name(name), p.name, rapid.Int64Range(1, 2).Draw(t, "part")}
		p.held[id] = rapid.Int64Range(0, p.held[id]).Draw(t, "held") // lowered before it is written
		claims = append(claims, ratelimit.SlotClaim{
			Name: id.name, Part: id.part, Most: m.most, Held: p.held[id], Need: rapid.Int64Range(0, m.most+1).Draw(t, "need"),
			Ahead: rapid.Int64Range(0, 3).Draw(t, "ahead"), Few: rapid.Int64Range(0, 2).Draw(t, "few"),
		})
	}
	got := slices.Clone(claims)
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		if err := m.h.db.ClaimSlots(m.h.Context(), p.name, got); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if want := m.grant(p, &claims[i]); got[i].Granted != want {
				t.Fatalf("%+v of %s: granted %d, want %d", claims[i], p.name, got[i].Granted, want)
			}
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "lost answer") > 0 {
		for i := range got {
			p.held[slotID{got[i].Name, p.name, got[i].Part}] = got[i].Granted
		}
	}
}

// name returns a name that no other run of the model has.
func (m *slotModel) name(of string) string { return m.processes[0].name + of }

// grant changes the rows as the claim does, and returns what it is granted.
func (m *slotModel) grant(p *slotProcess, c *ratelimit.SlotClaim) int64 {
	id := slotID{c.Name, p.name, c.Part}
	others := int64(0)
	for of, held := range m.rows {
		switch {
		case of.name != c.Name || of == id:
		case m.counts(of.process) || of.process == p.name:
			others += held
		default:
			delete(m.rows, of)
		}
	}
	free := max(0, m.most-others-c.Held)
	need := min(c.Need, free)
	if m.rows[id] = c.Held + need + max(0, min(c.Ahead, free-need-c.Few)); m.rows[id] == 0 {
		delete(m.rows, id)
	}
	return m.rows[id]
}

func (m *slotModel) counts(process string) bool {
	for _, p := range m.processes {
		if p.name == process {
			return p.counts
		}
	}
	return false
}

func (m *slotModel) end(t *rapid.T) {
	p := rapid.SampledFrom(m.processes).Draw(t, "process")
	p.lapsed, p.counts = true, rapid.Bool().Draw(t, "just now")
	ago := -time.Hour // that is, it counts for an hour
	if !p.counts {
		ago = 2*time.Second + time.Millisecond
	}
	m.h.endLease(p.node, ago)
}

func (m *slotModel) begin(t *rapid.T) {
	p := rapid.SampledFrom(m.processes).Draw(t, "process")
	m.h.renew(p.node)
	if p.lapsed { // it has nothing, until it claims again
		p.held = map[slotID]int64{}
	}
	p.lapsed, p.counts = false, true
}

func (m *slotModel) trim(t *rapid.T) {
	if err := m.h.db.TrimSlots(m.h.Context()); err != nil {
		t.Fatal(err)
	}
	for id := range m.rows {
		if !m.counts(id.process) {
			delete(m.rows, id)
		}
	}
}

func (m *slotModel) check(t *rapid.T) {
	sums := map[string]int64{}
	for _, p := range m.processes {
		for id, held := range p.held {
			if !p.lapsed {
				sums[id.name] += held
			}
		}
	}
	for name, sum := range sums {
		if sum > m.most {
			t.Fatalf("the processes that live may have %d requests of %s in flight, and the limit is %d", sum, name, m.most)
		}
	}
}

// Guarantee: processes that claim at once, in any order, never have more than the limit together; none fails.
func TestSlotsAtOnce(t *testing.T) {
	const most = 5
	h := newSlotHarness(t)
	names := []string{"x", "y", "z"}
	var held [3]atomic.Int64 // of all processes
	var all sync.WaitGroup
	for p := range 6 {
		process := h.join(fmt.Sprint("node", p), time.Hour)
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(p)))
			var own [3]int64
			for range 60 {
				var claims []ratelimit.SlotClaim
				order := r.Perm(len(names))
				for _, i := range order {
					lower := r.Int64N(own[i] + 1)
					held[i].Add(lower - own[i])
					own[i] = lower
					claims = append(claims, slotClaim(names[i], most, lower, r.Int64N(4)))
				}
				if err := h.db.ClaimSlots(t.Context(), process, claims); err != nil {
					t.Error(err)
					return
				}
				for n, i := range order {
					if sum := held[i].Add(claims[n].Granted - own[i]); sum > most {
						t.Errorf("the processes have %d of %s, and the limit is %d", sum, names[i], most)
					}
					own[i] = claims[n].Granted
				}
			}
			for i := range own {
				held[i].Add(-own[i])
			}
			claims := []ratelimit.SlotClaim{slotClaim("x", most, 0, 0), slotClaim("y", most, 0, 0), slotClaim("z", most, 0, 0)}
			if err := h.db.ClaimSlots(t.Context(), process, claims); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := h.number(`SELECT count(*) FROM slots`); n != 0 {
		t.Errorf("%d rows are left, want none", n)
	}
}

// Guarantee: what a process has counts until two seconds after the lease of its node has ended, also if another process with
// the name of the node has replaced it. Then it is free, and removed.
func TestSlotsOfDeadProcesses(t *testing.T) {
	h := newSlotHarness(t)
	dead, other := h.join("a", time.Hour), h.join("b", time.Hour)
	h.claim(dead, slotClaim("x", 1, 0, 1), slotClaim("y", 1, 0, 1), slotClaim("z", 1, 0, 1))
	h.endLease("a", time.Second/2) // less than a second is left
	h.exec(`UPDATE nodes SET ttl = ttl + 3600000000000 WHERE name = 'a'`)
	if got := h.claim(other, slotClaim("x", 1, 0, 1)); got[0].Granted != 0 || got[0].Others != 1 {
		t.Errorf("before the end: granted %d while others have %d", got[0].Granted, got[0].Others)
	}
	h.exec(`UPDATE nodes SET boot = decode(repeat('0a', 16), 'hex'), epoch = epoch + 1, renewed = clock_timestamp() WHERE name = 'a'`)
	if got := h.claim(other, slotClaim("x", 1, 0, 1)); got[0].Granted != 0 {
		t.Error("what a replaced process has was free before its time")
	}
	h.exec(`UPDATE slot_processes SET ends = clock_timestamp()`)
	if got := h.claim(other, slotClaim("x", 1, 0, 1), slotClaim("y", 1, 0, 1)); !slices.Equal(granted(got), []int64{1, 1}) {
		t.Errorf("after the end: granted %v", granted(got))
	}
	if got := h.claim(dead, slotClaim("x", 1, 0, 1)); got[0].Granted != 0 {
		t.Error("the dead process has something again")
	}
	if n := h.number(`SELECT count(*) FROM slots WHERE process = '` + dead + `'`); n != 1 {
		t.Errorf("the dead process has %d rows, want that of z", n)
	}
	if err := h.db.TrimSlots(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.number(`SELECT count(*) FROM slots`); n != 2 {
		t.Errorf("there are %d rows, want those of the process that lives", n)
	}
}

// Guarantee: a node that is suspended in mid-claim, with the locks of its names, makes at most one claim of another node to these
// fail: the server ends it by itself.
func TestSuspendedClaim(t *testing.T) {
	h := newSlotHarness(t)
	process := h.join("a", time.Hour)
	locked, resume, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- h.db.reserveAs(h.Context(), noHeadSoon, func(ctx context.Context, tx *tx) error {
			_, _, err := tx.lockedSlots(ctx, []string{"x"})
			close(locked)
			<-resume
			return cmp.Or(err, tx.claimSlots(ctx, process, namesOnly([]string{"y"})))
		})
	}()
	<-locked
	other := []ratelimit.SlotClaim{slotClaim("x", 1, 0, 1)}
	err := h.db.ClaimSlots(h.Context(), h.join("b", time.Hour), other)
	if err != nil { // on a busy machine
		err = h.db.ClaimSlots(h.Context(), h.join("b", time.Hour), other)
	}
	if err != nil || other[0].Granted != 1 {
		t.Errorf("granted %d, %v", other[0].Granted, err)
	}
	close(resume)
	if err := <-ended; err == nil {
		t.Error("the suspended claim goes on")
	}
}

// Guarantee: the edge is two seconds after the lease.
func TestSlotsEndWithTheLease(t *testing.T) {
	h := newSlotHarness(t)
	a, b := h.join("a", time.Hour), h.join("b", time.Hour)
	h.claim(a, slotClaim("x", 1, 0, 1))
	for _, ago := range []time.Duration{-time.Minute, 2*time.Second - time.Minute} {
		h.endLease("a", ago)
		if got := h.claim(b, slotClaim("x", 1, 0, 1)); got[0].Granted != 0 {
			t.Errorf("free %v after the lease", ago)
		}
	}
	h.endLease("a", 2*time.Second)
	if got := h.claim(b, slotClaim("x", 1, 0, 1)); got[0].Granted != 1 {
		t.Error("not free two seconds after the lease")
	}
	h.renew("a")
	if got := h.claim(a, slotClaim("x", 1, 0, 1)); got[0].Granted != 0 {
		t.Error("the process has again what another one has taken")
	}
}

// Guarantee: a process that lacks some asks the others that live; they see it until they claim. When all have said that
// they use what they have, it learns so, and not before.
func TestSlotsAreAskedFor(t *testing.T) {
	h := newSlotHarness(t)
	a, b, c := h.join("a", time.Hour), h.join("b", time.Hour), h.join("c", time.Hour)
	h.claim(a, slotClaim("x", 3, 0, 1), slotClaim("y", 3, 0, 1))
	h.claim(b, slotClaim("x", 3, 0, 2))
	lacks := h.claim(c, slotClaim("x", 3, 0, 1), slotClaim("y", 3, 0, 1))
	if !slices.Equal(granted(lacks), []int64{0, 1}) || !lacks[0].FullAt.IsZero() {
		t.Fatalf("got %+v", lacks)
	}
	if fmt.Sprint(h.asked(a), h.asked(b), h.asked(c)) != "[1] [1] []" {
		t.Errorf("asked: %v %v %v", h.asked(a), h.asked(b), h.asked(c))
	}
	again := slotClaim("x", 3, 0, 1)
	now := func() time.Time {
		_, at, err := h.db.AskedSlots(t.Context(), a, 1)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	full := func(held int64, since, seen time.Time) ratelimit.SlotClaim {
		return ratelimit.SlotClaim{Name: "x", Part: 1, Most: 3, Held: held, FullSince: since, Seen: seen}
	}
	early := lacks[0].At.Add(-time.Second)
	for i, one := range []struct{ a, b ratelimit.SlotClaim }{
		{full(1, early, now()), slotClaim("x", 3, 2, 0)},             // b has some that it does not use
		{full(1, early, early), full(2, early, now())},               // a says nothing of the time since
		{full(1, early, now()), full(2, now(), now())},               // at no time together
		{full(1, early, now()), full(2, time.Time{}, now())},         // b uses all no more
		{full(1, early, now()), full(2, lacks[0].At.Add(-1), early)}, // b says nothing of the time since
	} {
		h.asked(a)
		h.exec(`UPDATE slots SET asked = true`)
		h.claim(a, one.a)
		h.claim(b, one.b)
		if got := h.claim(c, again)[0]; got.FullAt.After(lacks[0].At) {
			t.Errorf("case %d: full", i)
		}
	}
	h.exec(`UPDATE slots SET asked = true`)
	h.claim(a, full(1, early, now()))
	h.claim(b, full(2, early, now()))
	if got := h.claim(c, again)[0]; !got.FullAt.After(lacks[0].At) || got.Granted != 0 {
		t.Errorf("got %+v, want full", got)
	}
	h.claim(b, slotClaim("x", 3, 1, 0))
	if got := h.claim(c, again)[0]; got.Granted != 1 {
		t.Errorf("got %+v, want what was given back", got)
	}
	h.claim(b, slotClaim("x", 3, 0, 0))
	if n := h.number(`SELECT count(*) FROM slots WHERE process = '` + b + `'`); n != 0 {
		t.Error("a process that has nothing has a row")
	}
}

// Guarantee: a node that joins again without having had slots leaves no trace, and traces go.
func TestReplacedProcessesAreForgotten(t *testing.T) {
	h := newSlotHarness(t)
	replace := func(boot string) {
		h.exec(`UPDATE nodes SET boot = decode(repeat($1, 16), 'hex') WHERE name = 'a'`, boot)
	}
	h.join("a", time.Hour)
	replace("01")
	if n := h.number(`SELECT count(*) FROM slot_processes`); n != 0 {
		t.Errorf("%d processes are kept that had nothing", n)
	}
	boot := lease.Boot{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	p := fmt.Sprintf("%x", boot[:])
	h.claim(p, slotClaim("x", 1, 0, 1))
	replace("02")
	if n := h.number(`SELECT count(*) FROM slot_processes WHERE process = '` + p + `'`); n != 1 {
		t.Errorf("%d processes are kept, want 1", n)
	}
	h.exec(`UPDATE slot_processes SET ends = clock_timestamp() - interval '2 minutes'`)
	replace("03")
	if n := h.number(`SELECT count(*) FROM slot_processes`); n != 0 {
		t.Errorf("%d processes are kept that ended", n)
	}
}
