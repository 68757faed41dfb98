package postgres

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/snapshot"
)

// clusterHarness is a database with the connections of a node.
type clusterHarness struct {
	*testing.T
	db     *DB
	leases *Leases
	views  *Views
	url    string
}

func newClusterHarness(t *testing.T) *clusterHarness { return newClusterHarnessAt(t, migrated(t)) }

func newClusterHarnessAt(t *testing.T, url string) *clusterHarness {
	h := &clusterHarness{T: t, url: url}
	h.db = openWith(t, Config{URL: h.url})
	h.leases = h.node("all")
	var err error
	if h.views, err = OpenViews(t.Context(), h.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.views.Close)
	return h
}

func (h *clusterHarness) node(role string) *Leases {
	h.Helper()
	l, err := OpenLeases(h.Context(), h.url, Node{Role: role, Version: "1.2.3", Format: snapshot.ChangeFormat, Limits: "separate", StartedAt: time.UnixMicro(1000)})
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(l.Close)
	return l
}

func (h *clusterHarness) carry(c lease.Call) lease.Answer {
	h.Helper()
	a, err := h.leases.Carry(h.Context(), c)
	if err != nil {
		h.Fatal(err)
	}
	return a
}

func (h *clusterHarness) view(about ...lease.Position) *lease.View {
	h.Helper()
	v, err := h.views.LeaseView(h.Context(), about)
	if err != nil {
		h.Fatal(err)
	}
	return v
}

// change commits a change and returns its position.
func (h *clusterHarness) change() lease.Position {
	h.Helper()
	return h.changeOf(snapshot.KeyChange, "key_1")
}

// changeOf writes a change of the kind, and returns its position.
func (h *clusterHarness) changeOf(kind snapshot.ChangeKind, recordID string) lease.Position {
	h.Helper()
	var p snapshot.Position
	err := h.db.mutate(h.Context(), func(t *tx) error {
		if _, err := t.AppendChange(h.Context(), kind, recordID); err != nil {
			return err
		}
		var err error
		p, err = t.Head(h.Context())
		return err
	})
	if err != nil {
		h.Fatal(err)
	}
	return lease.Position(p)
}

// Guarantee: the statements on the rows of nodes do what lease.Carry and Row.End say, for any sequence of
// calls of several processes.
func TestLeaseStatementsFollowTheProtocol(t *testing.T) {
	h := newClusterHarness(t)
	r := rand.New(rand.NewPCG(1, 2))
	positions := []lease.Position{{}}
	rows := map[string]lease.Row{}
	results := map[lease.Result]int{}
	for range 600 {
		if r.IntN(6) == 0 {
			positions = append(positions, h.change())
		}
		c := lease.Call{Kind: lease.Kind(r.IntN(4)), Node: []string{"a", "b"}[r.IntN(2)], Boot: lease.Boot{byte(r.IntN(2))}, TTL: time.Hour}
		before, exists := rows[c.Node]
		c.Epoch = before.Epoch - int64(r.IntN(4)/3)
		if exists && r.IntN(3) > 0 {
			c.Boot, c.Replace = before.Boot, before.Seen()
		}
		c.Position = positions[max(0, len(positions)-1-r.IntN(8)/6)]
		newest := positions[len(positions)-1]
		if r.IntN(6) == 0 {
			c.TTL = 0 // every change is older than a third of it
		}
		log := lease.Log{Known: true, Newest: newest, Overdue: c.TTL == 0 && c.Position != newest}
		if r.IntN(10) == 0 && c.Position.Number > 0 {
			c.Position.Mark[0]++
			log = lease.Log{}
		}
		var was *lease.Row
		if exists {
			was = &before
		}
		next, want := lease.Carry(was, &c, log)
		got := h.carry(c)
		results[want.Result]++
		if says := c.Kind != lease.Leave; says && time.Since(got.Time).Abs() > time.Minute || !says && !got.Time.IsZero() {
			t.Fatalf("%+v: the database's time is %v", c, got.Time)
		}
		if got.Result != want.Result || want.Result == lease.Done && (got.Row.Seen() != want.Row.Seen() || got.Newest != want.Newest) {
			t.Fatalf("%+v on %+v: got %+v, want %+v", c, was, got, want)
		}
		if want.Result == lease.Done {
			rows[c.Node] = next
		}
		if r.IntN(8) == 0 && exists {
			h.end(rows, c.Node, r.IntN(2) == 0)
		}
		for _, row := range h.view().Rows {
			if row != rows[row.Node] {
				t.Fatalf("after %+v the row is %+v, want %+v", c, row, rows[row.Node])
			}
		}
	}
	for result := lease.Done; result <= lease.Occupied; result++ {
		if results[result] == 0 {
			t.Errorf("result %d never came up: the test shows little", result)
		}
	}
}

// end ends a lease by its newest grant or by an older one.
func (h *clusterHarness) end(rows map[string]lease.Row, node string, newest bool) {
	h.Helper()
	row := rows[node]
	seen := row.Seen()
	if !newest {
		seen.Grant--
	}
	next, want := row.End(seen)
	got, err := h.views.EndLease(h.Context(), seen)
	if err != nil || got != want {
		h.Fatalf("ending %+v of %+v returned %t, %v; want %t", seen, row, got, err, want)
	}
	if want {
		rows[node] = next
	}
}

// Guarantee: a renewal is refused only if the oldest change that the node has not applied is older than a
// third of its TTL.
func TestRenewalIsRefusedOnlyIfTheNodeIsFarBehind(t *testing.T) {
	h := newClusterHarness(t)
	c := lease.Call{Kind: lease.Join, Node: "a", TTL: time.Hour}
	c.Epoch = h.carry(c).Row.Epoch
	h.change()
	c.Kind = lease.Renew
	if a := h.carry(c); a.Result != lease.Done {
		t.Errorf("a renewal without the newest change: got %d, want Done", a.Result)
	}
	c.TTL = 0 // the change is older than that
	if a := h.carry(c); a.Result != lease.Behind {
		t.Errorf("a renewal without an old change: got %d, want Behind", a.Result)
	}
	c.Kind = lease.Acknowledge
	if a := h.carry(c); a.Result != lease.Done {
		t.Errorf("an acknowledgement without an old change: got %d, want Done", a.Result)
	}
}

// Guarantee: a node that joins while a mutation runs learns that it must have the mutation's change, whatever
// the state was when it began to join.
func TestJoinWaitsForRunningMutations(t *testing.T) {
	h := newClusterHarness(t)
	joined := make(chan lease.Answer, 1)
	err := h.db.mutate(t.Context(), func(tx *tx) error {
		if _, err := tx.Head(t.Context()); err != nil { // it has the head now
			return err
		}
		go func() {
			a, err := h.leases.Carry(context.WithoutCancel(t.Context()), lease.Call{Kind: lease.Join, Node: "a", TTL: time.Hour})
			if err != nil {
				t.Error(err)
			}
			joined <- a
		}()
		h.untilBlocked()
		_, err := tx.AppendChange(t.Context(), snapshot.KeyChange, "key_1")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := <-joined; a.Result != lease.Done || a.Newest.Number != 1 {
		t.Errorf("the join returned %d, and change %d is the newest, want Done and 1", a.Result, a.Newest.Number)
	}
}

// Guarantee: a node joins although changes follow each other without a pause, and learns which change it must have.
func TestJoinWhileChangesGoOn(t *testing.T) {
	h := newClusterHarness(t)
	before := h.change()
	ctx, cancel := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	defer changes.Wait()
	defer cancel()
	for range 2 {
		changes.Go(func() {
			for ctx.Err() == nil {
				err := h.db.mutate(ctx, func(tx *tx) error {
					_, err := tx.AppendChange(ctx, snapshot.KeyChange, "key_1")
					return err
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 20 {
		h.change()
		a := h.carry(lease.Call{Kind: lease.Join, Node: "a", Boot: lease.Boot{byte(i)}, Replace: h.newest("a"), TTL: time.Hour, Position: before})
		if a.Result != lease.Done || a.Newest.Number <= before.Number {
			t.Fatalf("join %d returned %d, and change %d is the newest; want Done, and one after %d", i, a.Result, a.Newest.Number, before.Number)
		}
		before = a.Newest
	}
}

// newest returns the newest grant of a node.
func (h *clusterHarness) newest(node string) lease.Seen {
	h.Helper()
	for _, r := range h.view().Rows {
		if r.Node == node {
			return r.Seen()
		}
	}
	return lease.Seen{}
}

// untilBlocked waits until a connection waits for a lock.
func (h *clusterHarness) untilBlocked() {
	for h.Context().Err() == nil {
		var blocked bool
		if err := h.views.pool.QueryRow(h.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database())`).Scan(&blocked); err != nil {
			h.Error(err)
			return
		}
		if blocked {
			return
		}
	}
}

// Guarantee: a reader of leases learns which positions belong to another history, and which server it
// reads; the first node that joins makes its server settled.
func TestViewTellsHistoriesAndServers(t *testing.T) {
	h := newClusterHarness(t)
	p := h.change()
	other := p
	other.Mark[3]++
	v := h.view(lease.Position{}, p, other, lease.Position{Number: p.Number + 1})
	if want := []lease.Position{other, {Number: p.Number + 1}}; !slices.Equal(v.Unknown, want) {
		t.Errorf("unknown are %v, want %v", v.Unknown, want)
	}
	if v.Server == "" || !v.Settled || len(v.Rows) != 0 {
		t.Errorf("got %+v, want a settled server without rows", v)
	}
	if a := h.carry(lease.Call{Kind: lease.Join, Node: "a", TTL: time.Hour, Position: p}); a.Result != lease.Done {
		t.Fatalf("got %+v, want Done", a)
	}
	if _, err := h.views.pool.Exec(t.Context(), `UPDATE settled_servers SET name = 'another'`); err != nil {
		t.Fatal(err)
	}
	if h.view().Settled {
		t.Error("a server is settled that was not seen before")
	}
	if err := h.views.SettleServer(t.Context(), v.Server); err != nil {
		t.Fatal(err)
	}
	if !h.view().Settled {
		t.Error("the server is not settled after one lease was waited out")
	}
}

// Guarantee: the log is read from a position on, and a position that it does not contain is reported.
func TestChangesAfterAPosition(t *testing.T) {
	h := newClusterHarness(t)
	var all []lease.Position
	for range 3 {
		all = append(all, h.change())
	}
	last, err := h.db.LastPosition(t.Context())
	if err != nil || lease.Position(last) != all[2] {
		t.Errorf("the last position is %v, %v; want %v", last, err, all[2])
	}
	list, known, err := h.db.ChangesAfter(t.Context(), snapshot.Position(all[0]), 10)
	if err != nil || !known || len(list) != 2 || list[1].Seq != all[2].Number || list[1].Mark != all[2].Mark {
		t.Errorf("got %v, known %t, %v; want the changes after the first", list, known, err)
	}
	if list, known, err = h.db.ChangesAfter(t.Context(), snapshot.Position{}, 10); err != nil || !known || len(list) != 3 {
		t.Errorf("from the beginning: got %v, known %t, %v; want all", list, known, err)
	}
	other := snapshot.Position(all[1])
	other.Mark[7]++
	if _, known, err = h.db.ChangesAfter(t.Context(), other, 10); err != nil || known {
		t.Errorf("after a position of another history: known %t, %v; want false", known, err)
	}
}

// Guarantee: nodes are listed with their lag, and deleted by their identifiers.
func TestNodesAreListedAndDeleted(t *testing.T) {
	h := newClusterHarness(t)
	h.carry(lease.Call{Kind: lease.Join, Node: "a", TTL: time.Hour})
	h.change()
	var nodes []control.Node
	list := func() {
		t.Helper()
		err := h.db.view(t.Context(), h.db.readers, func(r *readTx) (err error) {
			nodes, err = r.Nodes(t.Context())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	list()
	if len(nodes) != 1 || nodes[0].Name != "a" || nodes[0].Role != "all" || nodes[0].Limits != "separate" || nodes[0].State != "live" || nodes[0].Lag != 1 ||
		nodes[0].StartedAt.UnixMicro() != 1000 || nodes[0].LeaseUntil.Before(time.Now()) {
		t.Fatalf("got %+v, want one live node that lacks one change", nodes)
	}
	err := h.db.mutate(t.Context(), func(tx *tx) error { return tx.DeleteNode(t.Context(), nodes[0].ID) })
	if err != nil {
		t.Fatal(err)
	}
	if list(); len(nodes) != 0 {
		t.Errorf("got %+v, want none", nodes)
	}
}

// Guarantee: a listener learns of each commit with changes, and the probe that notifications arrive.
func TestListenerLearnsOfChanges(t *testing.T) {
	h := newClusterHarness(t)
	l, err := OpenListener(t.Context(), h.url, h.db)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if works, err := l.Probe(t.Context()); err != nil || !works {
		t.Fatalf("Probe returned %t, %v; want true", works, err)
	}
	h.change()
	if err := l.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Wait(ctx); err == nil {
		t.Error("Wait returned nil without a change")
	}
	h.change()
	if err := l.Wait(t.Context()); err != nil {
		t.Errorf("after a wait that was given up: %v", err)
	}
}
