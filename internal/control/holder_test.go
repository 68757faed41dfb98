package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/store"
)

// holders is a harness with a gateway that has self-service, and an operator of its account.
type holders struct {
	*harness
	operator  *control.Actor
	gatewayID string
}

func newHolders(h *harness) *holders {
	h.tb.Helper()
	of := &holders{harness: h, operator: h.caller("acme", "admin")}
	of.gateway()
	return of
}

// gateway makes the gateway.
func (h *holders) gateway() {
	h.tb.Helper()
	g := h.harness.gateway(h.operator)
	h.gatewayID = g.ID
	on := true
	h.must(second(h.UpdateGateway(ctx(), h.operator, g.ID, gateway.Patch{SelfService: gateway.Member[gateway.SelfServicePatch]{
		Present: true, Value: gateway.SelfServicePatch{Usage: &on, Rotate: &on},
	}}, nil)))
}

func (h *holders) key(in control.KeyInput) *control.NewKey {
	h.tb.Helper()
	in.Name, in.Scope = "k", "read"
	return must[*control.NewKey](h.harness)(h.CreateKey(ctx(), h.operator, in))
}

// holder returns the holder of a key.
func (h *holders) holder(k *apikey.Key) *control.Actor {
	return &control.Actor{
		Kind: control.HolderActor, Account: h.operator.Account, KeyID: k.ID, KeyPrefix: k.Prefix,
		Method: "POST", Path: "/.keygate/rotate", ClientIP: "192.0.2.7", RequestID: "req_holder",
	}
}

func (h *holders) rotate(k *apikey.Key, days int) (*control.NewKey, error) {
	return h.RotateOwnKey(ctx(), h.holder(k), h.gatewayID, days)
}

// state returns the state of a key.
func (h *holders) state(k *apikey.Key) apikey.State {
	h.tb.Helper()
	return must[*apikey.Key](h.harness)(h.Key(ctx(), h.operator, k.ID)).State(h.clock.now())
}

// Guarantee: plans.md, 9: a holder rotates its key as an operator does, with the same fields and events, and the event and
// the audit record say that the holder did it.
func TestRotationByTheHolder(t *testing.T) {
	h := newHolders(newHarness(t))
	k := h.key(control.KeyInput{Owner: "ada", RateLimit: control.KeyLimitInput{Rate: "5/s"}, Metadata: map[string]string{"a": "b"}, ExpiresAt: "2027-01-01"})
	var made *control.NewKey
	before := h.records(h.operator.Account.ID)
	made = must[*control.NewKey](h.harness)(h.rotate(&k.Key, 7))
	wrote := h.records(h.operator.Account.ID).since(before)
	if _, events, changes := wrote.summary(); !slices.Equal(events, []string{"key.rotated " + k.ID, "key.created " + made.ID}) ||
		!slices.Equal(changes, []string{"holder " + made.ID, "key " + k.ID}) {
		t.Errorf("got events %q and changes %q", events, changes)
	}
	if by := dataOf(wrote.events[0])["by"]; by != "holder" {
		t.Errorf("key.rotated has by %v; want holder", by)
	}
	if len(wrote.audits) != 1 {
		t.Fatalf("got %d audit records; want 1", len(wrote.audits))
	}
	if r := wrote.audits[0]; r.ActorKeyID != k.ID || r.KeyID != k.ID || r.Path != "/.keygate/rotate" || r.ClientIP != "192.0.2.7" || fmt.Sprint(r.Diff["by"]) != "[<nil> holder]" {
		t.Errorf("got audit record %+v; want one of the holder", r)
	}
	n, was := made.Key, k.Key
	if n.Name != was.Name || n.Owner != "ada" || n.OwnerID != was.OwnerID || n.RateLimit != was.RateLimit || n.BucketID != was.BucketID || n.Metadata["a"] != "b" ||
		!n.ExpiresAt.Equal(was.ExpiresAt) || n.RotatedFrom != was.ID || made.Secret == "" || !made.OverlapEndsAt.Equal(h.clock.now().AddDate(0, 0, 7)) {
		t.Errorf("got %+v; want a key like %+v", made, was)
	}
	before = h.records(h.operator.Account.ID)
	h.must(second(h.RotateKey(ctx(), h.operator, made.ID, 7, "", nil)))
	if by, ok := dataOf(h.records(h.operator.Account.ID).since(before).events[0])["by"]; ok {
		t.Errorf("key.rotated of an operator has by %v; want none", by)
	}
}

// Guarantee: plans.md, 6: a key that its holder rotates keeps its concurrency.
func TestRotationByTheHolderKeepsTheConcurrency(t *testing.T) {
	h := newHolders(newHarness(t))
	k := h.key(control.KeyInput{Concurrency: new(int64(3))})
	made := must[*control.NewKey](h.harness)(h.rotate(&k.Key, 7))
	if made.Concurrency != 3 || made.BucketID != k.BucketID {
		t.Errorf("got the concurrency %d and the bucket %s; want 3 and %s", made.Concurrency, made.BucketID, k.BucketID)
	}
}

// Guarantee: a holder rotates its key once in 24 hours and chain of rotations, whatever operators rotate in between and after
// a restart. Its refusal says until when.
func TestHoldersRotateOnceADay(t *testing.T) {
	h := newHolders(newHarness(t))
	k := h.key(control.KeyInput{})
	refused := func(k *apikey.Key, at time.Time) {
		t.Helper()
		_, err := h.rotate(k, 1)
		h.wantCode(err, fault.RateLimitExceeded, "")
		var e *fault.Error
		if errors.As(err, &e) && (e.Limit == nil || e.Limit.ResetAt != at.Unix() || e.Limit.Scope != "self_service") {
			t.Errorf("got %+v; want a limit until %s", e.Limit, at)
		}
	}
	first := must[*control.NewKey](h.harness)(h.rotate(&k.Key, 30))
	next := h.clock.now().Add(24 * time.Hour)
	refused(&first.Key, next)
	refused(&k.Key, next)
	h.clock.advance(12 * time.Hour)
	h.reopen()
	replaced := must[*control.NewKey](h.harness)(h.RotateKey(ctx(), h.operator, first.ID, 0, "", nil))
	refused(&replaced.Key, next)
	h.clock.advance(12*time.Hour - time.Microsecond)
	refused(&replaced.Key, next)
	h.clock.advance(time.Microsecond)
	_, err := h.rotate(&k.Key, 1)
	h.wantCode(err, fault.Conflict, "")
	third := must[*control.NewKey](h.harness)(h.rotate(&replaced.Key, 30))
	refused(&third.Key, next.Add(24*time.Hour))
	other := h.key(control.KeyInput{})
	h.must(second(h.rotate(&other.Key, 1)))
}

// Guarantee: the transaction of a rotation refuses what was let in and has ended since: the key, its owner, the account, the
// setting, the gateway and its restriction; nothing is written.
func TestRotationsByHoldersAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(h *holders, k *control.NewKey)
		code fault.Code
	}{
		"revoked": {func(h *holders, k *control.NewKey) { h.must(second(h.RevokeKey(ctx(), h.operator, k.ID, nil))) }, fault.Unauthorized},
		"expired": {func(h *holders, _ *control.NewKey) { h.clock.advance(48 * time.Hour) }, fault.Unauthorized},
		"suspended owner": {func(h *holders, k *control.NewKey) {
			h.must(second(h.UpdateOwner(ctx(), h.operator, k.OwnerID, control.OwnerPatch{State: value("suspended")}, nil)))
		}, fault.Forbidden},
		"off": {func(h *holders, _ *control.NewKey) {
			off := false
			h.must(second(h.UpdateGateway(ctx(), h.operator, h.gatewayID, gateway.Patch{SelfService: gateway.Member[gateway.SelfServicePatch]{
				Present: true, Value: gateway.SelfServicePatch{Rotate: &off},
			}}, nil)))
		}, fault.RouteNotFound},
		"no gateway": {func(h *holders, _ *control.NewKey) {
			h.must(second(h.DeleteGateway(ctx(), h.operator, h.gatewayID, nil)))
		}, fault.RouteNotFound},
		"other gateway": {func(h *holders, _ *control.NewKey) { h.gatewayID = newHolders(h.harness).gatewayID }, fault.Forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHolders(newHarness(t))
			in := control.KeyInput{Owner: "ada", ExpiresAt: "2026-03-02"}
			if name == "other gateway" {
				in.GatewayID = h.gatewayID
			}
			k := h.key(in)
			c.end(h, k)
			h.wantNoRecords(h.operator.Account.ID, func() {
				_, err := h.rotate(&k.Key, 1)
				h.wantCode(err, c.code, "")
			})
		})
	}
	h := newHolders(newHarness(t))
	for _, days := range []int{-1, 0, 31} {
		_, err := h.rotate(&h.key(control.KeyInput{}).Key, days)
		h.wantCode(err, fault.ValidationFailed, "overlap_days")
	}
}

// madeKey is a key of a model, by whom it was made from which other.
type madeKey struct {
	key      apikey.Key
	from     *madeKey
	byHolder bool
	revoked  bool
	rotated  bool
}

// Guarantee: plans.md, 9: whatever holders and operators rotate, a revocation revokes the key and all that self-service has
// made from it, by one or several rotations, and no other key.
func TestRevocationTakesWhatSelfServiceHasMade(t *testing.T) {
	h := newHolders(newHarness(t))
	rapid.Check(t, func(rt *rapid.T) {
		h.tb = rt
		defer func() { h.tb = t }()
		all := []*madeKey{{key: h.key(control.KeyInput{}).Key}}
		add := func(k *control.NewKey, from *madeKey, byHolder bool) {
			from.rotated = true
			all = append(all, &madeKey{key: k.Key, from: from, byHolder: byHolder})
		}
		tip := func() *madeKey {
			k := all[len(all)-1]
			if k.revoked {
				all = append(all, &madeKey{key: h.key(control.KeyInput{}).Key})
				k = all[len(all)-1]
			}
			return k
		}
		rt.Repeat(map[string]func(*rapid.T){
			"holder": func(rt *rapid.T) {
				from := tip()
				h.clock.advance(24 * time.Hour)
				add(must[*control.NewKey](h.harness)(h.rotate(&from.key, rapid.IntRange(1, 30).Draw(rt, "overlap"))), from, true)
			},
			"operator": func(rt *rapid.T) {
				from := tip()
				add(must[*control.NewKey](h.harness)(h.RotateKey(ctx(), h.operator, from.key.ID, rapid.SampledFrom([]int{0, 1, 365}).Draw(rt, "overlap"), "", nil)), from, false)
			},
			"revoke": func(rt *rapid.T) {
				k := rapid.SampledFrom(all).Draw(rt, "key")
				h.must(second(h.RevokeKey(ctx(), h.operator, k.key.ID, nil)))
				k.revoked = true
				for _, other := range all { // in the order in which they were made
					ended := h.state(&other.key) == apikey.Expired
					other.revoked = other.revoked || other.byHolder && other.from.revoked && !ended
				}
			},
			"": func(*rapid.T) {
				for i, k := range all {
					got := h.state(&k.key)
					if k.revoked && got != apikey.Revoked || !k.revoked && got == apikey.Revoked && !(k.byHolder && k.from.revoked) {
						h.tb.Fatalf("key %d is %s; want revoked: %t", i, got, k.revoked)
					}
					if k.byHolder && k.from.revoked && got == apikey.Active {
						h.tb.Fatalf("key %d is active, and self-service has made it from a revoked key", i)
					}
				}
			},
		})
	})
}

// interruptedStore lets another transaction commit while the first one of the operation in marked is about to.
type interruptedStore struct {
	store.Engine
	mu      sync.Mutex
	between func() // of the next transaction with the mark
}

type markKey struct{}

// Update implements control.Store.
func (s *interruptedStore) Update(ctx context.Context, f func(control.Tx) error) error {
	return s.Engine.Update(ctx, func(tx control.Tx) error {
		err := f(tx)
		if ctx.Value(markKey{}) == nil {
			return err
		}
		s.mu.Lock()
		between := s.between
		s.between = nil
		s.mu.Unlock()
		if between != nil {
			between()
		}
		return err
	})
}

// Guarantee: when a revocation and a rotation by the holder overlap, in either order and on either engine, no key that the
// rotation has made is active once the revocation has returned. In PostgreSQL the one that commits later has read before the
// other one commits.
func TestRotationAndRevocationAtOnce(t *testing.T) {
	for name, open := range engines() {
		t.Run(name, func(t *testing.T) {
			base := newHarness(t)
			engine := open(t, base, nil)
			t.Cleanup(func() { base.must(engine.Close()) })
			s := &interruptedStore{Engine: engine}
			base.serve(s)
			h := newHolders(base)
			marked := context.WithValue(ctx(), markKey{}, true)
			revoke := func(ctx context.Context, k *control.NewKey) error {
				return second(h.RevokeKey(ctx, h.operator, k.ID, nil))
			}
			rotate := func(ctx context.Context, k *control.NewKey) (*control.NewKey, error) {
				return h.RotateOwnKey(ctx, h.holder(&k.Key), h.gatewayID, 30)
			}
			check := func(k, made *control.NewKey, err error) {
				t.Helper()
				if err != nil {
					h.wantCode(err, fault.Unauthorized, "")
				} else if got := h.state(&made.Key); got != apikey.Revoked {
					t.Errorf("the key that the holder has made is %s; want revoked", got)
				}
				if got := h.state(&k.Key); got != apikey.Revoked {
					t.Errorf("the key is %s; want revoked", got)
				}
			}
			if name == "postgres" { // SQLite has one writer at a time
				k := h.key(control.KeyInput{})
				s.between = func() { h.must(revoke(ctx(), k)) }
				made, err := rotate(marked, k)
				h.wantCode(err, fault.Unauthorized, "")
				check(k, made, err)

				k = h.key(control.KeyInput{})
				s.between = func() {
					var err error
					if made, err = rotate(ctx(), k); err != nil {
						t.Error(err)
					}
				}
				h.must(revoke(marked, k))
				check(k, made, nil)

				// The same for the second key of a chain.
				k = h.key(control.KeyInput{})
				next := must[*control.NewKey](h.harness)(rotate(ctx(), k))
				h.clock.advance(24 * time.Hour)
				s.between = func() {
					var err error
					if made, err = rotate(ctx(), next); err != nil {
						t.Error(err)
					}
				}
				h.must(revoke(marked, k))
				check(k, next, nil)
				check(k, made, nil)
			}
			for range 20 {
				k := h.key(control.KeyInput{})
				var made *control.NewKey
				var err error
				var both sync.WaitGroup
				both.Go(func() { made, err = rotate(ctx(), k) })
				both.Go(func() { h.must(revoke(ctx(), k)) })
				both.Wait()
				check(k, made, err)
			}
		})
	}
}
