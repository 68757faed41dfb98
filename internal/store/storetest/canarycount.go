package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/canary/count"
	"github.com/keygate/keygate/internal/canary/lead"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store"
)

var errLostResponse = errors.New("the response was lost")

// canaryModel is a canary whose requests several nodes count, and that several processes judge in turn.
type canaryModel struct {
	h       *harness
	now     time.Time
	running bool
	record  canary.Canary
	nodes   []*countingNode
	leaders []*lead.Leader
	named   int
	want    canary.Step // what was stored of the present step
	first   int         // its number
}

// countingNode is a node, and what it has counted and not stored.
type countingNode struct {
	*count.Counter
	unstored map[sideOf]canary.Counts
}

// sideOf is a side of a step, by its number.
type sideOf struct {
	number int
	side   canary.Side
}

// add adds requests to those that are not stored.
func (n *countingNode) add(of sideOf, requests, bad uint64) {
	sum := n.unstored[of]
	sum.Requests += requests
	sum.Bad += bad
	if n.unstored[of] = sum; sum == (canary.Counts{}) {
		delete(n.unstored, of)
	}
}

// doubtful is a store whose next write fails before it is carried out, or after.
type doubtful struct {
	store.Engine
	fails, loses bool
	wrote        func(list []canary.CountRow) // is called once for each batch that is carried out
	done         map[accesslog.BatchID]bool
}

func (d *doubtful) before() error {
	if d.fails {
		d.fails = false
		return errLostResponse
	}
	return nil
}

func (d *doubtful) after(err error) error {
	if d.loses && err == nil {
		d.loses = false
		return errLostResponse
	}
	return err
}

// AppendCanaryCounts implements count.Store.
func (d *doubtful) AppendCanaryCounts(ctx context.Context, batch accesslog.BatchID, list []canary.CountRow) error {
	if err := d.before(); err != nil {
		return err
	}
	err := d.Engine.AppendCanaryCounts(ctx, batch, list)
	if err == nil && !d.done[batch] {
		d.done[batch] = true
		d.wrote(list)
	}
	return d.after(err)
}

// FoldCanaryStep implements lead.Store.
func (d *doubtful) FoldCanaryStep(ctx context.Context, l canary.Lead, s *canary.StoredStep, gone []int64, size int64) error {
	if err := d.before(); err != nil {
		return err
	}
	return d.after(d.Engine.FoldCanaryStep(ctx, l, s, gone, size))
}

// RunningCanaries and JudgeCanary implement lead.Control.
func (m *canaryModel) RunningCanaries(_ context.Context, after string, _ int) ([]canary.Canary, error) {
	if !m.running || after >= m.record.ID {
		return nil, nil
	}
	c := m.record
	c.Progress = slices.Clone(c.Progress)
	return []canary.Canary{c}, nil
}

// JudgeCanary implements lead.Control.
func (m *canaryModel) JudgeCanary(ctx context.Context, canaryID string, number int, l canary.Lead, p canary.Progress, ran canary.Ran, d canary.Decision) error {
	held := get(m.h, func(ctx context.Context, tx control.ReadTx) (canary.Lead, error) { return tx.CanaryLead(ctx) })
	if held != l || number != m.record.Number || !m.running {
		return fault.New(fault.Conflict, "no")
	}
	most := m.record.Ran + m.now.Sub(m.record.Since)
	if canaryID != m.record.ID || ran.For < m.record.Ran || ran.For > most || !ran.Until.Equal(m.now) || d.Action != canary.Wait || p.Number != m.first {
		m.h.Fatalf("got %s, %v, %+v, %d; want %s, %v to %v until %v, to wait, %d", canaryID, ran, d, p.Number, m.record.ID, m.record.Ran, most, m.now, m.first)
	}
	m.record.Ran, m.record.Since = ran.For, ran.Until
	m.record.Progress[len(m.record.Progress)-1] = p
	m.record.Explanation = d.Explanation
	return ctx.Err()
}

func (m *canaryModel) pick(t *rapid.T) *countingNode {
	return m.nodes[rapid.IntRange(0, len(m.nodes)-1).Draw(t, "node")]
}

func (m *canaryModel) start(i int, d *doubtful) {
	c, err := count.New(count.Config{Store: d, Now: func() time.Time { return m.now }, Nodes: func() int { return len(m.nodes) }})
	if err != nil {
		m.h.Fatal(err)
	}
	n := &countingNode{c, map[sideOf]canary.Counts{}}
	c.Take([]accesslog.Entry{{Record: m.request(1, false, 1, 0)}}) // does not count, because it is not known whom the canary leaves out
	if err := c.Learn(m.h.Context()); err != nil {
		m.h.Fatal(err)
	}
	m.nodes[i] = n
}

func (m *canaryModel) request(caller uint64, next bool, latency time.Duration, status uint16) accesslog.Record {
	r := accesslog.Record{CanaryCaller: caller, CanaryStep: uint32(m.record.Number), CanaryNext: next, UpstreamStatus: status, Upstream: int64(latency)}
	r.Canary, _ = id.Parse(id.Canary, m.record.ID)
	return r
}

func (m *canaryModel) take(t *rapid.T) {
	if !m.running {
		return
	}
	n := m.pick(t)
	for range rapid.IntRange(1, 20).Draw(t, "requests") {
		caller, next := rapid.Uint64Range(0, 9).Draw(t, "caller"), rapid.Bool().Draw(t, "next")
		status := rapid.SampledFrom([]uint16{200, 404, 503}).Draw(t, "status")
		latency := time.Duration(rapid.IntRange(1, 1000).Draw(t, "ms")) * time.Millisecond
		n.Take([]accesslog.Entry{{Record: m.request(caller, next, latency, status)}})
		if caller == 7 {
			continue // is left out
		}
		side, bad := canary.Other, uint64(0)
		if status >= 500 {
			bad = 1
		}
		if next {
			side = canary.Next
		}
		n.add(sideOf{m.record.Number, side}, 1, bad)
	}
}

// wrote notes rows that a node has stored for the first time.
func (m *canaryModel) wrote(i int, list []canary.CountRow) {
	n := m.nodes[i]
	for _, r := range list {
		var tally canary.Tally
		if err := tally.UnmarshalBinary(r.Data); err != nil {
			m.h.Fatal(err)
		}
		if r.Number >= m.first {
			m.want.AddTally(0, &tally)
		}
		for _, side := range []canary.Side{canary.Next, canary.Other} {
			c := tally.Counts(side)
			n.add(sideOf{r.Number, side}, -c.Requests, -c.Bad)
		}
	}
}

// check fails unless a leader that has read everything stores exactly what was counted and stored.
func (m *canaryModel) check(t *rapid.T, l *lead.Leader) {
	for range 2 {
		m.now = m.now.Add(time.Minute)
		if err := l.Look(m.h.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p := m.record.Progress[len(m.record.Progress)-1]
	for side, f := range map[canary.Side]canary.Figures{canary.Next: p.Next, canary.Other: p.Other} {
		want := m.want.Counts(side)
		if got := (canary.Counts{Requests: f.Requests, Bad: f.Bad}); got != want {
			t.Fatalf("got %+v on side %d, want %+v", got, side, want)
		}
	}
	stored, err := m.h.CanaryStep(m.h.Context(), m.record.ID)
	if err != nil {
		t.Fatal(err)
	}
	if m.want.Empty() {
		return
	}
	got := canary.NewStep()
	if stored == nil || stored.Step != m.record.Step || stored.First != m.first || got.UnmarshalBinary(stored.Data) != nil || !got.Equal(&m.want.Tally) {
		t.Fatalf("the stored step %+v is not what was counted", stored)
	}
	if rest, err := m.h.CanaryCountsOf(m.h.Context(), m.record.ID, 0, 1<<40, 10); err != nil || len(rest) > 0 {
		t.Fatalf("got the rows %v and the error %v, want none: they are in the step", rest, err)
	}
}

// Guarantee: whatever nodes count, store, store again because a response was lost, and lose in a crash, and whichever process leads
// after which pause or step: what the leader has added up is exactly what the nodes have stored of the present step, without callers
// who are left out, and what they have stored is what they have counted.
func testCanaryCounts(h *harness) {
	const enough = 30
	g := h.insertGateway(h.insertAccount("canaries"))
	tried := 0
	rapid.Check(h, func(t *rapid.T) {
		if tried++; tried > enough {
			return
		}
		m := &canaryModel{h: h, now: epoch(), running: true, first: 1, want: *canary.NewStep()}
		m.record = *h.insertCanary(g, canary.Running)
		m.record.Plan = canary.Plan{Upstream: "next", Other: "default", Hold: "24h", MinRequests: 1 << 40}
		m.record.Progress = []canary.Progress{{Step: 1, Number: 1, Since: m.now}}
		defer func() {
			m.record.State = canary.Aborted
			h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateCanary(ctx, &m.record) })
		}()
		nodes := make([]*doubtful, 3)
		m.nodes = make([]*countingNode, len(nodes))
		leading := &doubtful{Engine: h.Engine}
		for range 2 {
			m.leaders = append(m.leaders, m.leader(leading))
		}
		if err := m.leaders[0].Look(h.Context()); err != nil {
			t.Fatal(err)
		}
		held := get(h, func(ctx context.Context, tx control.ReadTx) (canary.Lead, error) { return tx.CanaryLead(ctx) })
		if err := h.LeaveOutCallers(h.Context(), held, m.record.ID, canary.EncodeCallers([]uint64{7})); err != nil {
			t.Fatal(err)
		}
		for i := range nodes {
			nodes[i] = &doubtful{Engine: h.Engine, done: map[accesslog.BatchID]bool{}, wrote: func(list []canary.CountRow) { m.wrote(i, list) }}
			m.start(i, nodes[i])
		}
		look := func(t *rapid.T) {
			leading.fails, leading.loses = rapid.IntRange(0, 5).Draw(t, "fails") == 0, rapid.IntRange(0, 5).Draw(t, "loses") == 0
			if err := m.leaders[rapid.IntRange(0, 1).Draw(t, "leader")].Look(h.Context()); err != nil && !errors.Is(err, errLostResponse) {
				t.Fatal(err)
			}
			leading.fails, leading.loses = false, false
		}
		write := func(t *rapid.T) {
			i := rapid.IntRange(0, len(nodes)-1).Draw(t, "node")
			nodes[i].fails, nodes[i].loses = rapid.IntRange(0, 3).Draw(t, "fails") == 0, rapid.IntRange(0, 3).Draw(t, "loses") == 0
			if err := m.nodes[i].Sync(h.Context()); err != nil && !errors.Is(err, errLostResponse) {
				t.Fatal(err)
			}
		}
		some := func(t *rapid.T) { // so that much happens in few steps
			for range 4 {
				m.take(t)
				write(t)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": m.take, "write": write, "some": some, "some 2": some, "look": look, "look 2": look,
			"pass": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "s")) * time.Second)
			},
			"crash": func(t *rapid.T) {
				i := rapid.IntRange(0, len(nodes)-1).Draw(t, "node")
				m.start(i, nodes[i])
			},
			"pause or resume": func(t *rapid.T) {
				if m.running && rapid.IntRange(0, 2).Draw(t, "rarely") > 0 {
					return
				}
				if m.running = !m.running; m.running {
					m.record.Number++
					m.record.Since = m.now
				} else {
					m.record.Ran += m.now.Sub(m.record.Since)
				}
			},
			"advance": func(t *rapid.T) {
				if !m.running || rapid.IntRange(0, 2).Draw(t, "rarely") > 0 {
					return
				}
				m.record.Step++
				m.record.Number++
				m.first, m.want = m.record.Number, *canary.NewStep()
				m.record.Ran, m.record.Since = 0, m.now
				m.record.Progress = append(slices.Clone(m.record.Progress), canary.Progress{Step: m.record.Step + 1, Number: m.first, Since: m.now})
			},
			"process ends": func(t *rapid.T) { m.leaders[rapid.IntRange(0, 1).Draw(t, "leader")] = m.leader(leading) },
		})
		if !m.running {
			m.running, m.record.Since = true, m.now
			m.record.Number++
		}
		for i, n := range m.nodes {
			nodes[i].fails, nodes[i].loses = false, false
			if err := n.Sync(h.Context()); err != nil {
				t.Fatal(err)
			}
			if len(n.unstored) > 0 {
				t.Fatalf("%v were counted by a node and not stored", slices.Collect(maps.Keys(n.unstored)))
			}
		}
		m.check(t, m.leaders[0])
		m.check(t, m.leader(leading))
	})
}

func (m *canaryModel) leader(d *doubtful) *lead.Leader {
	m.named++
	l, err := lead.New(lead.Config{Store: d, Control: m, Process: fmt.Sprintf("%s.%d", m.record.ID, m.named), Now: func() time.Time { return m.now }})
	if err != nil {
		m.h.Fatal(err)
	}
	return l
}

// Guarantee: only who leads changes what was added up, and there is one who leads: another process takes the lead with the next
// epoch. Rows, steps and lists of canaries that have ended or are held go, in bounded steps, and others stay.
func testCanaryLead(h *harness) {
	ctx := h.Context()
	one, leads, err := h.TakeCanaryLead(ctx, "one")
	if err != nil || !leads || one != (canary.Lead{Claimant: "one", Epoch: 1}) {
		h.Fatalf("got %+v, %v, %v", one, leads, err)
	}
	if again, leads, err := h.TakeCanaryLead(ctx, "one"); err != nil || !leads || again != one {
		h.Errorf("again: got %+v, %v, %v", again, leads, err)
	}
	two, leads, err := h.TakeCanaryLead(ctx, "two")
	if err != nil || !leads || two != (canary.Lead{Claimant: "two", Epoch: 2}) {
		h.Fatalf("got %+v, %v, %v", two, leads, err)
	}
	g := h.insertGateway(h.insertAccount("lead"))
	ids := map[canary.State]string{"gone": id.New(id.Canary)}
	for _, s := range []canary.State{canary.Running, canary.Paused, canary.Held, canary.Promoted, canary.Aborted} {
		ids[s] = h.insertCanary(g, s).ID
	}
	batches := accesslog.NewBatches()
	for state, canaryID := range ids {
		batch, _ := batches.Open()
		rows := []canary.CountRow{{CanaryID: canaryID, Number: 1, At: epoch(), Data: []byte(state)}, {CanaryID: canaryID, Number: 2, At: epoch(), Data: []byte("too")}}
		for range 2 {
			if err := h.AppendCanaryCounts(ctx, batch, rows); err != nil {
				h.Fatal(err)
			}
		}
		batches.Close()
		for _, l := range []canary.Lead{one, two, two} {
			want := fault.Code("")
			if l == one {
				want = fault.Conflict
			}
			step := &canary.StoredStep{CanaryID: canaryID, Step: 1, First: 2, Data: []byte("step")}
			if err := h.FoldCanaryStep(ctx, l, step, nil, 0); fault.CodeOf(err) != want {
				h.Errorf("fold: got %v, want %q", err, want)
			}
			if err := h.LeaveOutCallers(ctx, l, canaryID, []byte("list of "+l.Claimant)); fault.CodeOf(err) != want {
				h.Errorf("leave out: got %v, want %q", err, want)
			}
			if got, err := h.CanaryStep(ctx, canaryID); err != nil || l == two && (got == nil || got.First != 2 || string(got.Data) != "step") {
				h.Errorf("got the step %+v and the error %v", got, err)
			}
		}
	}
	if undecided, err := h.UndecidedCanaries(ctx, "", 10); err != nil || len(undecided) != 0 {
		h.Errorf("got %d undecided canaries and the error %v, want 0", len(undecided), err)
	}
	other := h.insertCanary(g, canary.Running)
	if undecided, err := h.UndecidedCanaries(ctx, "", 10); err != nil || len(undecided) != 1 || undecided[0].ID != other.ID {
		h.Errorf("got %+v as undecided and the error %v, want one", undecided, err)
	}
	if undecided, err := h.UndecidedCanaries(ctx, other.ID, 10); err != nil || len(undecided) != 0 {
		h.Errorf("got %+v behind it and the error %v, want none", undecided, err)
	}
	if _, err := h.TrimCanaryCounts(ctx, one, 1); fault.CodeOf(err) != fault.Conflict {
		h.Errorf("trim: got %v, want a conflict", err)
	}
	for more, n := true, 0; more; n++ {
		if more, err = h.TrimCanaryCounts(ctx, two, 3); err != nil || n > 10 {
			h.Fatalf("trim: %v, after %d steps", err, n)
		}
	}
	stays := []string{ids[canary.Running], ids[canary.Paused]}
	slices.Sort(stays)
	lists, err := h.CanaryCallersLeftOut(ctx, slices.Collect(maps.Values(ids)))
	if got := slices.Sorted(maps.Keys(lists)); err != nil || !slices.Equal(got, stays) || string(lists[stays[0]]) != "list of two" {
		h.Errorf("got lists of %v and the error %v, want %v", got, err, stays)
	}
	left, err := h.ListCanaryCounts(ctx, 0, 100)
	if err != nil || len(left) != 4 || !slices.IsSortedFunc(left, func(a, b canary.Listed) int { return int(a.Seq - b.Seq) }) {
		h.Fatalf("got the rows %+v and the error %v, want those of two canaries", left, err)
	}
	read := 0
	err = h.ReadCanaryCounts(ctx, []int64{left[0].Seq, left[1].Seq, 1 << 40}, func(seq int64, r *canary.CountRow) error {
		read++
		if r.CanaryID != left[0].CanaryID || !r.At.Equal(epoch()) || len(r.Data) == 0 || r.Number != int(seq-left[0].Seq)+1 {
			h.Errorf("row %d is %+v", seq, r)
		}
		return nil
	})
	end, endErr := h.CanaryCountsEnd(ctx)
	if err != nil || read != 2 || endErr != nil || end != int64(2*len(ids)) {
		h.Errorf("read %d rows (%v), the end is %d (%v); want 2 and %d", read, err, end, endErr, 2*len(ids))
	}
	for canaryID := range maps.Values(ids) {
		got, err := h.CanaryStep(ctx, canaryID)
		if err != nil || (got != nil) != slices.Contains(stays, canaryID) {
			h.Errorf("got the step %+v and the error %v", got, err)
		}
	}
}

// Guarantee: counts that nobody adds up are refused beyond canary.MaxStored, and accepted again when they are added up. Those of paused
// canaries go when they are more than half of that.
func testCanaryCountsAreBounded(h *harness) {
	ctx := h.Context()
	l, _, err := h.TakeCanaryLead(ctx, "one")
	if err != nil {
		h.Fatal(err)
	}
	c := h.insertCanary(h.insertGateway(h.insertAccount("many")), canary.Running)
	paused := h.insertCanary(h.insertGateway(h.insertAccount("paused")), canary.Paused)
	wantPaused := func(want int) {
		h.Helper()
		if _, err := h.TrimCanaryCounts(ctx, l, 10); err != nil {
			h.Fatal(err)
		}
		if list, err := h.CanaryCountsOf(ctx, paused.ID, 0, math.MaxInt64, 10); err != nil || len(list) != want {
			h.Errorf("got %d rows of a paused canary, and %v; want %d", len(list), err, want)
		}
	}
	if err := h.AppendCanaryCounts(ctx, accesslog.BatchID{}, []canary.CountRow{{CanaryID: paused.ID, Number: 1, At: epoch(), Data: []byte("few")}}); err != nil {
		h.Fatal(err)
	}
	wantPaused(1)
	large := make([]byte, 8<<20)
	stored := 0
	for ; stored <= canary.MaxStored; stored += len(large) {
		err = h.AppendCanaryCounts(ctx, accesslog.BatchID{}, []canary.CountRow{{CanaryID: c.ID, Number: 1, At: epoch(), Data: large}})
		if err != nil {
			break
		}
	}
	if fault.CodeOf(err) != fault.Unavailable || stored < canary.MaxStored-len(large) || stored > canary.MaxStored {
		h.Fatalf("got the error %v with %d bytes, want that it is refused", err, stored)
	}
	wantPaused(0) // nobody adds them up, and there are many
	if err := h.AppendCanaryCounts(ctx, accesslog.BatchID{}, []canary.CountRow{{CanaryID: c.ID, Number: 1, At: epoch(), Data: large}}); err != nil {
		h.Fatal(err) // there is room for one
	}
	list, err := h.ListCanaryCounts(ctx, 0, 3)
	if err != nil || len(list) != 3 {
		h.Fatal(list, err)
	}
	for range 2 { // the response may be lost
		if err := h.FoldCanaryStep(ctx, l, &canary.StoredStep{CanaryID: c.ID, Data: []byte("step")}, []int64{list[0].Seq, list[1].Seq}, 2*int64(len(large))); err != nil {
			h.Fatal(err)
		}
	}
	for i := range 3 {
		want := fault.Code("")
		if i == 2 {
			want = fault.Unavailable
		}
		err := h.AppendCanaryCounts(ctx, accesslog.BatchID{}, []canary.CountRow{{CanaryID: c.ID, Number: 1, At: epoch(), Data: large}})
		if fault.CodeOf(err) != want {
			h.Fatalf("row %d: got %v, want %q", i, err, want)
		}
	}
	gone := []int64{}
	for _, one := range list[2:] {
		gone = append(gone, one.Seq)
	}
	if err := h.FoldCanaryStep(ctx, l, &canary.StoredStep{CanaryID: c.ID, Data: []byte("step")}, gone, 1); err != nil { // a wrong size is put right
		h.Fatal(err)
	}
	if _, err := h.TrimCanaryCounts(ctx, l, 10); err != nil {
		h.Fatal(err)
	}
	if err := h.AppendCanaryCounts(ctx, accesslog.BatchID{}, []canary.CountRow{{CanaryID: c.ID, Number: 1, At: epoch(), Data: large}}); err != nil {
		h.Error(err)
	}
}
