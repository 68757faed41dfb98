package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// slowSource is a source whose whole gateways can be held back after they were read. It counts
// those reads.
type slowSource struct {
	snapshot.Source
	whole atomic.Int64
	read  chan string   // receives each identifier when the gateway has been read
	goOn  chan struct{} // then lets the read return
}

func (s *slowSource) GatewayByID(ctx context.Context, gatewayID string) (*gateway.Gateway, []gateway.Route, error) {
	g, routes, err := s.Source.GatewayByID(ctx, gatewayID)
	s.whole.Add(1)
	if s.read != nil {
		s.read <- gatewayID
		<-s.goOn
	}
	return g, routes, err
}

// slowHarness returns a harness whose Follower reads through a slowSource, which holds nothing back
// yet.
func slowHarness(t *testing.T) (*harness, *slowSource) {
	t.Helper()
	h := newHarness(t)
	s := &slowSource{Source: h.source}
	var err error
	h.follower, err = snapshot.New(snapshot.Config{Source: s, Reserver: h.reserver, Now: h.clock.Now, GatewayDomain: "gw.test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.follower.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h, s
}

// holdBack makes the source hold back whole gateways, and returns once the change of g is held
// back. It returns a function that releases it and waits for the call of CatchUp.
func (s *slowSource) holdBack(t *testing.T, h *harness, g gateway.Gateway) (goOn func()) {
	t.Helper()
	s.read, s.goOn = make(chan string, 100), make(chan struct{})
	caughtUp := make(chan error, 1)
	go func() { caughtUp <- h.follower.CatchUp(context.Background()) }()
	if id := <-s.read; id != g.ID {
		t.Fatalf("gateway %s was read, want %s", id, g.ID)
	}
	return sync.OnceFunc(func() {
		close(s.goOn)
		if err := <-caughtUp; err != nil {
			t.Error(err)
		}
	})
}

func change(kind snapshot.ChangeKind, id string) snapshot.Change {
	return snapshot.Change{Kind: kind, ID: id}
}

// Guarantee: a change of a key, of an account or of another gateway's settings is in force when
// CatchUp returns, while the table of a gateway is still being read.
func TestChangesOvertakeARouteTable(t *testing.T) {
	h, s := slowHarness(t)
	big, other := h.gateway(), h.gateway()
	h.source.PutGateway(big)
	h.source.PutGateway(other, route("/a", config(t, "5/s", "", "", ""), "GET"))
	k, secret := h.key()
	h.source.PutKey(k)
	h.catchUp()
	h.source.PutGateway(big, route("/new", ratelimit.Config{}, "GET"))
	goOn := s.holdBack(t, h, big)
	defer goOn()

	k.RevokedAt = h.clock.wall()
	h.source.PutKey(k)
	if err := h.follower.CatchUp(t.Context(), change(snapshot.KeyChange, k.ID)); err != nil {
		t.Fatal(err)
	}
	if h.follower.Current().FindKey(secret) != nil {
		t.Error("a revoked key is in force")
	}
	other.Hostname, other.HostGiven = "other.example", true
	h.source.PutSettings(other)
	if err := h.follower.CatchUp(t.Context(), change(snapshot.SettingsChange, other.ID)); err != nil {
		t.Fatal(err)
	}
	if g := h.follower.Current().GatewayByHost("other.example"); g == nil || g.ID != other.ID || g.FindNode("/a") == nil {
		t.Errorf("got %v at the new hostname, want the other gateway with its route", g)
	}
	suspended := h.account
	suspended.State = account.Suspended
	h.source.PutAccount(suspended)
	if err := h.follower.CatchUp(t.Context(), change(snapshot.AccountChange, suspended.ID)); err != nil {
		t.Fatal(err)
	}
	if g := h.follower.Current().GatewayByHost("other.example"); g != nil {
		t.Error("a gateway of a suspended account is in force")
	}
	if g := h.follower.Current().GatewayByID(big.ID); g.FindNode("/new") != nil {
		t.Error("the table that is held back is in force")
	}
	goOn()
	if g := h.follower.Current().GatewayByID(big.ID); g.FindNode("/new") == nil {
		t.Error("the table is not in force after CatchUp")
	}
	if g := h.follower.Current().GatewayByHost("other.example"); g != nil {
		t.Error("the table has put an older account in force")
	}
}

// Guarantee: a change of a gateway is never overwritten by a table of the same gateway that was read
// before it.
func TestAnOlderTableNeverOverwritesALaterChange(t *testing.T) {
	h, s := slowHarness(t)
	g := h.gateway()
	r := route("/a", config(t, "5/s", "", "", ""), "GET")
	h.source.PutGateway(g)
	h.catchUp()
	h.source.PutGateway(g, r)
	goOn := s.holdBack(t, h, g)
	later := make(chan error, 1)
	r.RateLimit = config(t, "7/s", "", "", "")
	g.Hostname, g.HostGiven = "later.example", true
	h.source.PutRoute(g.ID, r)
	h.source.PutSettings(g)
	go func() {
		later <- h.follower.CatchUp(context.Background(), change(snapshot.RouteChange, snapshot.RouteChangeID(g.ID, r.ID)))
	}()
	goOn()
	if err := <-later; err != nil {
		t.Fatal(err)
	}
	got := h.follower.Current().GatewayByHost("later.example")
	if got == nil || got.RouteByID(r.ID).Config() != r.RateLimit {
		t.Errorf("got %v, want the later hostname and limit", got)
	}
}

// Guarantee: a change of settings or of a single route, also its creation, move and deletion, does
// not read the route table.
func TestDeltasDoNotReadTheTable(t *testing.T) {
	h, s := slowHarness(t)
	g := h.gateway()
	routes := []gateway.Route{route("/a", ratelimit.Config{}, "GET"), route("/a", ratelimit.Config{}, "PUT"), route("/b/{id}", ratelimit.Config{}, "GET")}
	h.source.PutGateway(g, routes...)
	h.catchUp()
	before := s.whole.Load()
	g.Timeout = "3s"
	h.source.PutSettings(g)
	limited := routes[2]
	limited.RateLimit, limited.Methods = config(t, "5/s", "", "9/day", ""), []string{"DELETE", "GET"}
	h.source.PutRoute(g.ID, limited)
	public := routes[0]
	public.Auth = gateway.AuthNone
	h.source.PutRoute(g.ID, public)
	h.catchUp()
	moved := routes[1]
	moved.Path = "/c"
	h.source.PutRoute(g.ID, moved)
	h.source.PutRoute(g.ID, route("/c/*", ratelimit.Config{}, "GET"))
	h.source.DeleteRoute(g.ID, public.ID)
	h.catchUp()
	if n := s.whole.Load() - before; n != 0 {
		t.Errorf("the whole gateway was read %d times, want 0", n)
	}
	h.sameAsLoaded()
}

// Guarantee: CatchUp for a change that is in force succeeds although the store cannot be read any
// more, and fails for a change that is not in force.
func TestCatchUpSaysWhetherItsChangeIsInForce(t *testing.T) {
	h := newHarness(t)
	k, secret := h.key()
	h.source.PutKey(k)
	h.catchUp()
	seq, err := h.source.LastSeq(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("lost")
	h.source.Fail(lost)
	if err := h.follower.CatchUp(t.Context(), snapshot.Change{Seq: seq, Kind: snapshot.KeyChange, ID: k.ID}); err != nil {
		t.Errorf("for a change in force: got %v, want nil", err)
	}
	if err := h.follower.CatchUp(t.Context(), snapshot.Change{Seq: seq + 1, Kind: snapshot.KeyChange, ID: k.ID}); !errors.Is(err, lost) {
		t.Errorf("for a later change: got %v, want the store's error", err)
	}
	h.source.Fail(nil)
	if h.follower.Current().FindKey(secret) == nil {
		t.Error("the key is not in force")
	}
}

// describe returns what a Follower has in force, in a comparable form.
func (h *harness) describe(f *snapshot.Follower, gateways []string, paths []string, secrets []string) string {
	var b strings.Builder
	s := f.Current()
	for _, id := range gateways {
		g := s.GatewayByID(id)
		if g == nil {
			fmt.Fprintf(&b, "%s: none\n", id)
			continue
		}
		fmt.Fprintf(&b, "%s: %s %v %d routes\n", id, g.Hostname(), g.Upstream.Timeout, g.Routes())
		for _, p := range paths {
			n := g.FindNode(p)
			if n == nil {
				continue
			}
			fmt.Fprintf(&b, "  %s public %t allow %s", p, g.PublicNode(n), n.Allow())
			for _, m := range []string{"DELETE", "GET", "PUT"} {
				if r := n.Route(m); r != nil {
					fmt.Fprintf(&b, " %s %s %v", m, r.ID(), r.Config())
					if g.RouteByID(r.ID()) != r {
						b.WriteString(" (another one by its identifier)")
					}
				}
			}
			b.WriteByte('\n')
		}
	}
	for i, secret := range secrets {
		if k := s.FindKey(secret); k != nil {
			fmt.Fprintf(&b, "key %d: %s\n", i, k.ID())
		}
	}
	return b.String()
}

// sameAsLoaded fails if the snapshot in force differs from what a new Follower loads from the same store.
func (h *harness) sameAsLoaded(secrets ...string) {
	h.t.Helper()
	fresh := newFollower(h.t, h)
	if err := fresh.Load(context.Background()); err != nil {
		h.t.Fatal(err)
	}
	ids, err := h.source.GatewayIDs(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	paths := []string{"/a", "/b/1", "/a/b", "/c", "/c/d"}
	if got, want := h.describe(h.follower, ids, paths, secrets), h.describe(fresh, ids, paths, secrets); got != want {
		h.t.Fatalf("in force:\n%s\nstored:\n%s", got, want)
	}
}

// Guarantee: after any sequence of pushes, changes of single routes and settings, deletions and
// changes of keys, the stored configuration is in force whenever CatchUp has returned, even if
// another call catches up at the same time.
func TestWhatIsInForceIsWhatIsStored(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newHarness(t)
			rnd := rand.New(rand.NewPCG(seed, 1))
			m := &changes{harness: h, rnd: rnd, tables: map[string][]gateway.Route{}}
			var background sync.WaitGroup
			for range 60 {
				var made []snapshot.Change
				background.Go(func() {
					if err := h.follower.CatchUp(context.Background()); err != nil {
						t.Error(err)
					}
				})
				for range 1 + rnd.IntN(4) {
					made = append(made, m.step())
				}
				if rnd.IntN(20) == 0 {
					h.source.Trim()
				}
				for _, c := range made {
					if err := h.follower.CatchUp(t.Context(), c); err != nil {
						t.Fatal(err)
					}
				}
				h.sameAsLoaded(m.secrets...)
				background.Wait()
			}
		})
	}
}

// changes makes random changes of a source.
type changes struct {
	*harness
	rnd      *rand.Rand
	gateways []gateway.Gateway
	tables   map[string][]gateway.Route
	secrets  []string
}

// step makes one change and returns it.
func (m *changes) step() snapshot.Change {
	if len(m.gateways) == 0 || m.rnd.IntN(30) == 0 {
		g := m.gateway()
		m.gateways = append(m.gateways, g)
		m.source.PutGateway(g)
		return m.made(snapshot.GatewayChange, g.ID)
	}
	i := m.rnd.IntN(len(m.gateways))
	g := &m.gateways[i]
	switch m.rnd.IntN(10) {
	case 0:
		m.tables[g.ID] = m.table()
		m.source.PutGateway(*g, m.tables[g.ID]...)
	case 1:
		k, secret := m.key()
		m.source.PutKey(k)
		m.secrets = append(m.secrets, secret)
		if m.rnd.IntN(2) == 0 {
			k.RevokedAt = m.clock.wall()
			m.source.PutKey(k)
		}
		return m.made(snapshot.KeyChange, k.ID)
	case 2:
		g.Timeout = fmt.Sprintf("%ds", 1+m.rnd.IntN(9))
		m.source.PutSettings(*g)
		return m.made(snapshot.SettingsChange, g.ID)
	case 3:
		id := g.ID
		if m.rnd.IntN(4) > 0 {
			break
		}
		m.source.DeleteGateway(id)
		delete(m.tables, id)
		m.gateways = slices.Delete(m.gateways, i, i+1)
		return m.made(snapshot.GatewayChange, id)
	default:
		return m.changeRoute(g.ID)
	}
	return m.made(snapshot.GatewayChange, g.ID)
}

// changeRoute adds, changes or deletes one route. The table stays valid.
func (m *changes) changeRoute(gatewayID string) snapshot.Change {
	old := m.tables[gatewayID]
	table := slices.Clone(old)
	var r gateway.Route
	if len(table) > 0 && m.rnd.IntN(3) > 0 {
		i := m.rnd.IntN(len(table))
		r = table[i]
		if m.rnd.IntN(5) == 0 {
			m.tables[gatewayID] = slices.Delete(table, i, i+1)
			m.source.DeleteRoute(gatewayID, r.ID)
			return m.made(snapshot.RouteChange, snapshot.RouteChangeID(gatewayID, r.ID))
		}
		m.edit(&r)
		table[i] = r
	} else {
		r = route(m.path(), ratelimit.Config{}, m.methods()...)
		table = append(table, r)
	}
	if valid(table) {
		m.tables[gatewayID] = table
		m.source.PutRoute(gatewayID, r)
	}
	return m.made(snapshot.RouteChange, snapshot.RouteChangeID(gatewayID, r.ID))
}

func (m *changes) edit(r *gateway.Route) {
	switch m.rnd.IntN(4) {
	case 0:
		r.RateLimit = config(m.t, fmt.Sprintf("%d/s", 1+m.rnd.IntN(9)), "", "", "")
	case 1:
		r.Methods = m.methods()
	case 2:
		r.Path = m.path()
	default:
		r.Auth = gateway.AuthNone
	}
}

func (m *changes) path() string {
	return []string{"/a", "/b/{id}", "/b/{name}", "/a/b", "/c", "/c/*", "/*"}[m.rnd.IntN(7)]
}

func (m *changes) methods() []string {
	return [][]string{{"GET"}, {"PUT"}, {"DELETE"}, {"GET", "PUT"}, {"DELETE", "GET"}}[m.rnd.IntN(5)]
}

// table returns a random valid table.
func (m *changes) table() []gateway.Route {
	var table []gateway.Route
	for range m.rnd.IntN(8) {
		if table = append(table, route(m.path(), ratelimit.Config{}, m.methods()...)); !valid(table) {
			table = table[:len(table)-1]
		}
	}
	return table
}

func valid(table []gateway.Route) bool {
	specs := make([]gateway.RouteSpec, len(table))
	for i, r := range table {
		specs[i] = gateway.RouteSpec{Path: r.Path, Methods: r.Methods}
	}
	return len(gateway.CheckTable(specs)) == 0
}

// made returns the last change of the source, which must be of the given record.
func (m *changes) made(kind snapshot.ChangeKind, id string) snapshot.Change {
	seq, err := m.source.LastSeq(context.Background())
	if err != nil {
		m.t.Fatal(err)
	}
	return snapshot.Change{Seq: seq, Kind: kind, ID: id}
}
