package snapshot_test

import (
	"context"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
)

// positions is the change log of a source, whose marks are those of one history.
type positions struct {
	*snapshottest.Source
	history byte
}

func (p *positions) at(number int64) snapshot.Position {
	if number == 0 {
		return snapshot.Position{}
	}
	return snapshot.Position{Number: number, Mark: [8]byte{p.history}}
}

func (p *positions) LastPosition(ctx context.Context) (snapshot.Position, error) {
	seq, err := p.LastSeq(ctx)
	return p.at(seq), err
}

func (p *positions) ChangesAfter(ctx context.Context, at snapshot.Position, limit int) ([]snapshot.Change, bool, error) {
	if at != p.at(at.Number) {
		return nil, false, nil
	}
	list, complete, err := p.Changes(ctx, at.Number, limit)
	for i := range list {
		list[i].Mark = p.at(list[i].Seq).Mark
	}
	return list, complete, err
}

// sharedHarness is a Follower of one of several nodes.
type sharedHarness struct {
	*harness
	log                *positions
	applied, restarted int
}

func newSharedHarness(t *testing.T) *sharedHarness {
	t.Helper()
	h := &sharedHarness{harness: newHarness(t)}
	h.log = &positions{Source: h.source, history: 1}
	h.start()
	return h
}

// start loads a new Follower, as after a restart.
func (h *sharedHarness) start() {
	h.t.Helper()
	f, err := snapshot.New(snapshot.Config{
		Source: h.source, Reserver: h.reserver, Now: h.clock.Now, GatewayDomain: "gw.test",
		Shared: &snapshot.Shared{
			Log: h.log, Hint: make(chan struct{}),
			Applied: func() { h.applied++ }, Restarted: func() { h.restarted++ },
		},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := f.Load(context.Background()); err != nil {
		h.t.Fatal(err)
	}
	h.follower = f
}

// wantApplied checks that everything is in force up to the newest change.
func (h *sharedHarness) wantApplied() {
	h.t.Helper()
	last, err := h.log.LastPosition(context.Background())
	if got := h.follower.Applied(); err != nil || got != last || h.follower.Lag() != 0 {
		h.t.Errorf("applied is %v and the lag %d, want %v and 0", got, h.follower.Lag(), last)
	}
}

// Guarantee: on one of several nodes, a gateway that cannot be compiled is out of service, also after a
// restart, and does not keep the changes after it from being applied.
func TestGatewayThatDoesNotCompileIsOutOfServiceOnANode(t *testing.T) {
	h := newSharedHarness(t)
	good := h.gateway()
	h.source.PutGateway(good, route("/a", ratelimit.Config{}, "GET"))
	h.catchUp()
	h.wantApplied()
	bad := good
	bad.Timeout = "soon"
	h.source.PutGateway(bad)
	k, _ := h.key()
	h.source.PutKey(k)
	if err := h.follower.CatchUp(context.Background()); err == nil || !strings.Contains(err.Error(), bad.ID) {
		t.Errorf("CatchUp: got %v, want an error that names the gateway", err)
	}
	h.wantApplied()
	for _, when := range []string{"after the change", "after a restart"} {
		g := h.follower.Current().GatewayByID(bad.ID)
		if g == nil || !g.OutOfService || h.follower.Current().GatewayByHost(g.Hostname()) != g {
			t.Errorf("%s the gateway is %+v, want one that is out of service", when, g)
		}
		h.start()
	}
	h.source.PutGateway(good, route("/b", ratelimit.Config{}, "GET"))
	h.catchUp()
	if g := h.follower.Current().GatewayByID(bad.ID); g.OutOfService || g.FindNode("/b") == nil {
		t.Error("the gateway is not in force after it was repaired")
	}
	h.wantApplied()
}

// Guarantee: a change log of another history is noticed, and everything is read again.
func TestOtherHistoryIsReadAgain(t *testing.T) {
	h := newSharedHarness(t)
	k, secret := h.key()
	h.source.PutKey(k)
	h.catchUp()
	h.wantApplied()
	h.source.Trim() // nothing but a load brings what follows
	h.log.history = 2
	h.source.DeleteKey(k.ID)
	h.catchUp()
	if h.restarted == 0 || h.follower.Current().FindKey(secret) != nil {
		t.Errorf("restarted %d times, and the key of the lost history is %v", h.restarted, h.follower.Current().FindKey(secret))
	}
	h.wantApplied()
}
