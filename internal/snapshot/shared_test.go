package snapshot_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
)

// positions is the change log of a source, whose marks belong to one history.
type positions struct {
	*snapshottest.Source
	history byte
	revoked map[string]apikey.Digest // by key, as its entries say
	bad     map[string]error         // keys, plans and owners whose records cannot be read
	reading func()                   // called before records of keys are read
	batches int                      // of records of keys
	newer   int64                    // number of a change in a newer format
}

func (p *positions) KeysByID(ctx context.Context, keyIDs []string, f func(string, *apikey.Key, error)) error {
	p.batches++
	if p.reading != nil {
		p.reading()
	}
	for _, keyID := range keyIDs {
		k, err := p.KeyByID(ctx, keyID)
		switch {
		case p.bad[keyID] != nil:
			f(keyID, nil, p.bad[keyID])
		case err == nil:
			f(keyID, k, nil)
		case fault.CodeOf(err) != fault.NotFound:
			return err
		}
	}
	return nil
}

func (p *positions) EachReadableKey(ctx context.Context, since time.Time, f func(*apikey.Key) error, bad func(string, error)) error {
	return p.EachKey(ctx, since, func(k *apikey.Key) error {
		if err := p.bad[k.ID]; err != nil {
			bad(k.ID, err)
			return nil
		}
		return f(k)
	})
}

func (p *positions) EachReadablePlan(ctx context.Context, f func(*plan.Plan) error, bad func(string, error)) error {
	return p.EachPlan(ctx, func(one *plan.Plan) error {
		if err := p.bad[one.ID]; err != nil {
			bad(one.ID, err)
			return nil
		}
		return f(one)
	})
}

func (p *positions) EachReadableIssuer(ctx context.Context, f func(*issuer.Issuer) error, bad func(string, error)) error {
	return p.EachIssuer(ctx, func(i *issuer.Issuer) error {
		if err := p.bad[i.ID]; err != nil {
			bad(i.ID, err)
			return nil
		}
		return f(i)
	})
}

func (p *positions) EachReadableOwner(ctx context.Context, f func(*owner.Owner) error, bad func(string, error)) error {
	return p.EachOwner(ctx, func(o *owner.Owner) error {
		if err := p.bad[o.ID]; err != nil {
			bad(o.ID, err)
			return nil
		}
		return f(o)
	})
}

func (p *positions) ReadableAccounts(ctx context.Context, bad func(string, error)) ([]account.Account, error) {
	list, err := p.Accounts(ctx)
	for i := range list {
		if err := p.bad[list[i].ID]; err != nil {
			bad(list[i].ID, err)
			list[i].State = account.Suspended
		}
	}
	return list, err
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
		if list[i].Seq == p.newer {
			list[i].Format = snapshot.ChangeFormat + 1
		}
		if d, ok := p.revoked[list[i].ID]; ok {
			list[i].Revoked = &d
		}
	}
	return list, complete, err
}

// sharedHarness is a Follower of one of several nodes.
type sharedHarness struct {
	*harness
	log                *positions
	reads              snapshot.Source // nil: source
	applied, restarted int
	unreadable         int
}

func newSharedHarness(t *testing.T) *sharedHarness {
	t.Helper()
	h := &sharedHarness{harness: newHarness(t)}
	h.log = &positions{Source: h.source, history: 1, revoked: map[string]apikey.Digest{}, bad: map[string]error{}}
	h.start()
	return h
}

// start loads a new Follower, as after a restart.
func (h *sharedHarness) start() {
	h.t.Helper()
	var source snapshot.Source = h.source
	if h.reads != nil {
		source = h.reads
	}
	f, err := snapshot.New(snapshot.Config{
		Source: source, Reserver: h.reserver, Now: h.clock.Now, GatewayDomain: "gw.test",
		Shared: &snapshot.Shared{
			Log: h.log, Hint: make(chan struct{}),
			Applied: func() { h.applied++ }, Restarted: func() { h.restarted++ },
			Unreadable: func(error) { h.unreadable++ },
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
// restart, and does not keep later changes from being applied.
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

// Guarantee: on one of several nodes, a key whose record cannot be read is refused, before and after a restart.
// None of 999 other keys waits for it; all are read at once. The key is in force when it can be read again.
func TestKeyThatCannotBeReadStopsNoOther(t *testing.T) {
	h := newSharedHarness(t)
	keys, secrets := make([]apikey.Key, 1000), make([]string, 1000)
	for i := range keys {
		keys[i], secrets[i] = h.key()
	}
	h.source.PutKey(keys[500])
	h.catchUp()
	h.log.batches = 0
	h.log.bad[keys[500].ID] = errors.New("damaged")
	for i := range keys {
		h.source.PutKey(keys[i])
	}
	h.catchUp()
	h.wantApplied()
	if h.log.batches != 1 {
		t.Errorf("the records were read in %d batches, want 1", h.log.batches)
	}
	for _, when := range []string{"after the change", "after a restart"} {
		for i := range keys {
			if found := h.follower.Current().FindKey(secrets[i]) != nil; found != (i != 500) {
				t.Fatalf("%s key %d is in force: %t, want %t", when, i, found, i != 500)
			}
		}
		h.start()
	}
	delete(h.log.bad, keys[500].ID)
	h.catchUp()
	if h.follower.Current().FindKey(secrets[500]) == nil {
		t.Error("the key is not in force although its record can be read again")
	}
	h.wantUnusable(0, 0, 0)
}

// wantUnusable checks the numbers of records that cannot be used.
func (h *sharedHarness) wantUnusable(keys, gateways, accounts int) {
	h.t.Helper()
	if k, g, a := h.follower.Unusable(); k != keys || g != gateways || a != accounts {
		h.t.Errorf("%d keys, %d gateways and %d accounts cannot be used, want %d, %d and %d", k, g, a, keys, gateways, accounts)
	}
}

// Guarantee: on one of several nodes, an account whose record cannot be read counts as suspended and does not stop
// other accounts. It is active again when its record can be read, without a further change.
func TestAccountThatCannotBeReadIsSuspended(t *testing.T) {
	h := newSharedHarness(t)
	bad := account.Account{ID: id.New(id.Account), Name: "bad", State: account.Active}
	good := account.Account{ID: id.New(id.Account), Name: "good", State: account.Active}
	h.source.PutAccount(bad)
	h.source.PutAccount(good)
	h.catchUp()
	h.log.bad[bad.ID] = errDamaged
	h.source.PutAccount(bad)
	h.catchUp()
	h.wantApplied()
	for range 2 {
		s := h.follower.Current()
		if s.Account(bad.ID).State != account.Suspended || s.Account(good.ID).State != account.Active {
			t.Errorf("the accounts are %+v and %+v, want the first one suspended", s.Account(bad.ID), s.Account(good.ID))
		}
		h.wantUnusable(0, 0, 1)
		h.start()
	}
	delete(h.log.bad, bad.ID)
	h.catchUp()
	if a := h.follower.Current().Account(bad.ID); a.State != account.Active {
		t.Errorf("the account is %+v although its record can be read again", a)
	}
	h.wantUnusable(0, 0, 0)
}

// Guarantee: an error that does not say that the record is damaged, such as an error of the connection, takes no
// gateway out of service: the change is put in force when the store can be read again.
func TestOtherErrorsTakeNoGatewayOutOfService(t *testing.T) {
	h := newSharedHarness(t)
	source := &unreadableGateways{Source: h.source}
	h.reads = source
	h.start()
	g := h.gateway()
	h.source.PutGateway(g)
	h.catchUp()
	for _, err := range []error{errors.New("unexpected message"), fault.New(fault.Unavailable, "away"), context.DeadlineExceeded} {
		source.bad, source.err = g.ID, err
		h.source.PutGateway(g)
		if got := h.follower.CatchUp(context.Background()); !errors.Is(got, err) {
			t.Errorf("CatchUp returned %v, want %v", got, err)
		}
		if g := h.follower.Current().GatewayByID(g.ID); g == nil || g.OutOfService {
			t.Errorf("after %v the gateway is %+v, want it in service", err, g)
		}
		h.wantUnusable(0, 0, 0)
		source.bad = ""
		h.catchUp()
		h.wantApplied()
	}
}

// Guarantee: a revocation is in force before the records of 999 changes ahead of it are read, and stays in force
// if these records cannot be read.
func TestRevocationDoesNotWaitForRecords(t *testing.T) {
	h := newSharedHarness(t)
	revoked, secret := h.key()
	h.source.PutKey(revoked)
	h.catchUp()
	before := h.follower.Applied()
	for range 999 {
		k, _ := h.key()
		h.source.PutKey(k)
	}
	revoked.RevokedAt = time.Now()
	h.log.revoked[revoked.ID] = revoked.Digest
	h.source.PutKey(revoked)
	read := false
	h.log.reading = func() {
		if read = true; h.follower.Current().FindKey(secret) != nil {
			t.Error("records are read before the revocation is in force")
		}
		h.source.Fail(fault.New(fault.Unavailable, "away"))
	}
	if err := h.follower.CatchUp(context.Background()); err == nil || !read {
		t.Errorf("CatchUp returned %v after reading records: %t; want an error", err, read)
	}
	if h.follower.Current().FindKey(secret) != nil || h.follower.Applied() != before {
		t.Error("the key is in force, or changes count as applied that could not be read")
	}
	h.log.reading = nil
	h.source.Fail(nil)
	h.catchUp()
	h.wantApplied()
	if _, _, ok := h.follower.RevokedKey(revoked.Digest); !ok {
		t.Error("the key is not known as revoked")
	}
}

// unreadableGateways is a source that cannot read some gateways.
type unreadableGateways struct {
	*snapshottest.Source
	bad string
	err error // nil: errDamaged
}

var errDamaged = fmt.Errorf("the server says: %w", snapshot.ErrDamaged)

func (u *unreadableGateways) GatewayByID(ctx context.Context, gatewayID string) (*gateway.Gateway, []gateway.Route, error) {
	if gatewayID == u.bad {
		return nil, nil, cmp.Or(u.err, errDamaged)
	}
	return u.Source.GatewayByID(ctx, gatewayID)
}

func (u *unreadableGateways) EachGateway(ctx context.Context, f func(*gateway.Gateway, []gateway.Route) error) error {
	if u.bad != "" {
		return errDamaged
	}
	return u.Source.EachGateway(ctx, f)
}

// Guarantee: on one of several nodes, a gateway whose record cannot be read is out of service and does not stop
// other gateways, before and after a restart, and serves again when it can be read.
func TestGatewayThatCannotBeReadIsOutOfService(t *testing.T) {
	h := newSharedHarness(t)
	source := &unreadableGateways{Source: h.source}
	h.reads = source
	h.start()
	bad, good := h.gateway(), h.gateway()
	h.source.PutGateway(bad)
	h.catchUp()
	source.bad = bad.ID
	h.source.PutGateway(bad)
	h.source.PutGateway(good)
	if err := h.follower.CatchUp(context.Background()); !errors.Is(err, errDamaged) {
		t.Errorf("CatchUp returned %v, want that the gateway cannot be read", err)
	}
	h.wantApplied()
	s := h.follower.Current()
	if g := s.GatewayByID(bad.ID); g == nil || !g.OutOfService || s.GatewayByID(good.ID) == nil || s.GatewayByID(good.ID).OutOfService {
		t.Errorf("the bad gateway is %+v and the good one %+v, want only the former out of service", g, s.GatewayByID(good.ID))
	}
	h.start()
	if s := h.follower.Current(); s.GatewayByID(good.ID) == nil {
		t.Error("after a restart the good gateway is not in force")
	}
	source.bad = ""
	h.catchUp()
	if g := h.follower.Current().GatewayByID(bad.ID); g == nil || g.OutOfService {
		t.Errorf("the gateway is %+v after its record can be read again, want it in service", g)
	}
}

// Guarantee: a change in a format that this version does not read is noticed; changes before it are in force, and it
// never counts as applied.
func TestChangeOfANewerVersionIsNotApplied(t *testing.T) {
	h := newSharedHarness(t)
	before, secret := h.key()
	after, newer := h.key()
	h.source.PutKey(before)
	h.catchUp()
	applied := h.follower.Applied()
	h.log.newer = applied.Number + 2
	h.source.PutKey(before)
	h.source.PutKey(after)
	for range 2 {
		if err := h.follower.CatchUp(context.Background()); err == nil || !strings.Contains(err.Error(), "upgrade this node") {
			t.Errorf("CatchUp returned %v, want that the node must be upgraded", err)
		}
	}
	s := h.follower.Current()
	if s.FindKey(secret) == nil || s.FindKey(newer) != nil || h.unreadable != 2 || h.follower.Applied().Number > applied.Number+1 {
		t.Errorf("applied is %v, and %d times a change was said to be unreadable", h.follower.Applied(), h.unreadable)
	}
}
