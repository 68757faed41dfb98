package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
)

func newOwner(a *account.Account, externalID string) *owner.Owner {
	return &owner.Owner{ID: id.New(id.Owner), AccountID: a.ID, ExternalID: externalID, State: owner.Active, CreatedAt: epoch(), Version: 1}
}

// insertOwner inserts an owner after applying change, which may be nil.
func (h *harness) insertOwner(a *account.Account, externalID string, change func(*owner.Owner)) *owner.Owner {
	h.Helper()
	o := newOwner(a, externalID)
	if change != nil {
		change(o)
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertOwner(ctx, o) })
	return o
}

func (h *harness) owner(accountID, ownerID string) *owner.Owner {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (*owner.Owner, error) {
		return tx.Owner(ctx, accountID, ownerID)
	})
}

// setOwner makes an owner that need not exist the owner of a key; "" stands for none.
func setOwner(k *apikey.Key, externalID string) {
	if k.Owner, k.OwnerID = externalID, ""; externalID != "" {
		k.OwnerID = "own_" + externalID
	}
}

func ownerOf(a *account.Account) *rapid.Generator[*owner.Owner] {
	return rapid.Custom(func(t *rapid.T) *owner.Owner {
		o := newOwner(a, "")
		o.ExternalID = rapid.StringMatching(`[ -~]{0,9}`).Draw(t, "external_id") + o.ID
		o.Name = text().Draw(t, "name")
		o.PlanID = maybe(rapid.Just(id.New(id.Plan))).Draw(t, "plan")
		o.State = rapid.SampledFrom([]owner.State{owner.Active, owner.Suspended}).Draw(t, "state")
		if rapid.Bool().Draw(t, "has metadata") {
			o.Metadata = rapid.MapOfN(text(), text(), 1, 16).Draw(t, "metadata")
		}
		o.TimeZone = rapid.SampledFrom([]string{"", "UTC", "Africa/Cairo"}).Draw(t, "time_zone")
		o.AnchorDay = rapid.IntRange(0, 28).Draw(t, "anchor_day")
		o.CreatedAt = moment().Draw(t, "created_at")
		o.Version = rapid.Int64Min(1).Draw(t, "version")
		return o
	})
}

// Guarantee: an owner is returned as it was inserted and as it was updated, to the data plane too. An update does not
// change fixed fields.
func testOwnerRoundTrip(h *harness) {
	a := h.insertAccount("a")
	rapid.Check(h, func(t *rapid.T) {
		o, changed := ownerOf(a).Draw(t, "owner"), ownerOf(a).Draw(t, "changed")
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertOwner(ctx, o) })
		same(t, "inserted", h.owner(a.ID, o.ID), o)
		changed.ID = o.ID
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateOwner(ctx, changed) })
		changed.ExternalID, changed.CreatedAt = o.ExternalID, o.CreatedAt
		same(t, "by its external ID", get(h, func(ctx context.Context, tx control.ReadTx) (*owner.Owner, error) {
			return tx.OwnerByExternalID(ctx, a.ID, o.ExternalID)
		}), changed)
		same(t, "by external IDs", get(h, func(ctx context.Context, tx control.ReadTx) ([]owner.Owner, error) {
			return tx.OwnersByExternalID(ctx, a.ID, []string{"no owner " + o.ExternalID, o.ExternalID})
		}), []owner.Owner{*changed})
		got, err := h.OwnerByID(h.Context(), o.ID)
		same(t, "for the data plane", []any{got, err}, []any{changed, error(nil)})
	})
}

// Guarantee: external IDs are unique in an account, and no account finds, lists or changes the owners of another one.
func testOwnerRules(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	o := h.insertOwner(a, "ada", nil)
	h.insertOwner(b, "ada", nil)
	h.insertOwner(a, "Ada", nil)
	h.conflict("external_id", func(ctx context.Context, tx control.Tx) error { return tx.InsertOwner(ctx, newOwner(a, "ada")) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DeleteOwner(ctx, b.ID, o.ID) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
		stolen := *o
		stolen.AccountID = b.ID
		return tx.UpdateOwner(ctx, &stolen)
	})
	missing(h, "Owner", func(ctx context.Context, tx control.ReadTx) (*owner.Owner, error) { return tx.Owner(ctx, b.ID, o.ID) })
	empty(h, "OwnersByExternalID", func(ctx context.Context, tx control.ReadTx) ([]owner.Owner, error) {
		return tx.OwnersByExternalID(ctx, b.ID, []string{"Ada"})
	})
	missing(h, "OwnerByExternalID", func(ctx context.Context, tx control.ReadTx) (*owner.Owner, error) {
		return tx.OwnerByExternalID(ctx, b.ID, "Ada")
	})
	same(h, "unchanged", h.owner(a.ID, o.ID), o)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteOwner(ctx, a.ID, o.ID) })
	missing(h, "a deleted owner", func(ctx context.Context, tx control.ReadTx) (*owner.Owner, error) {
		return tx.Owner(ctx, a.ID, o.ID)
	})
	if _, err := h.OwnerByID(h.Context(), o.ID); fault.CodeOf(err) != fault.NotFound {
		h.Errorf("OwnerByID of a deleted owner: got %v, want not found", err)
	}
	h.insertOwner(a, "ada", nil)
}

// Guarantee: for every combination of filters, a list of owners has exactly those that they select, newest first and
// page by page.
func testOwnerList(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	plans := []string{"", h.insertPlan(a, "free").ID, h.insertPlan(a, "gold").ID}
	h.insertOwner(b, "ada-1", nil)
	var owners []*owner.Owner
	for i := range 36 {
		owners = append(owners, h.insertOwner(a, fmt.Sprintf("%s-%d", []string{"ada", "100%", "BOB_"}[i%3], i), func(o *owner.Owner) {
			o.Name, o.PlanID, o.State = []string{"", "Ärzte GmbH", "Ada & Co"}[i/3%3], plans[i/9%3], []owner.State{owner.Active, owner.Suspended}[i/2%2]
		}))
	}
	slices.Reverse(owners)
	rapid.Check(h, func(t *rapid.T) {
		f := control.OwnerFilter{
			ExternalID: rapid.SampledFrom([]string{"", "", "", "ada-0", "ada", "BOB_-35"}).Draw(t, "external_id"),
			State:      rapid.SampledFrom([]owner.State{"", owner.Active, owner.Suspended}).Draw(t, "state"),
			PlanID:     rapid.SampledFrom(plans).Draw(t, "plan"),
			Query:      rapid.SampledFrom([]string{"", "", "ada", "ADA", "_", "%", "bob", "Ä", "ä", "gmbh", "-1", "absent"}).Draw(t, "query"),
		}
		var want []owner.Owner
		for _, o := range owners {
			in := strings.Contains(lowerASCII(o.Name), lowerASCII(f.Query)) || strings.Contains(lowerASCII(o.ExternalID), lowerASCII(f.Query))
			if in && (f.ExternalID == "" || o.ExternalID == f.ExternalID) && (f.State == "" || o.State == f.State) && (f.PlanID == "" || o.PlanID == f.PlanID) {
				want = append(want, *o)
			}
		}
		same(t, "owners", pages(t, h, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]owner.Owner, error) {
			return tx.Owners(ctx, a.ID, f, p)
		}, func(o *owner.Owner) string { return o.ID }), want)
	})
}

// Guarantee: an owner has active keys exactly if one of its keys is active at that time, whether its expiry was told or
// not, and whether its gateway has ended.
func testOwnerHasActiveKeys(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	gateways := []string{"", h.insertGateway(a).ID}
	h.update(func(ctx context.Context, tx control.Tx) error {
		return tx.EndGateway(ctx, &control.EndedGateway{ID: gateways[1], AccountID: a.ID, At: epoch()})
	})
	n := 0
	rapid.Check(h, func(t *rapid.T) {
		n++
		o := h.insertOwner(a, fmt.Sprint(n), nil)
		h.insertOwner(b, fmt.Sprint(n), nil)
		var keys []*apikey.Key
		for range rapid.IntRange(0, 3).Draw(t, "keys") {
			k := newKey(a)
			drawKey(t, k, gateways)
			k.Owner, k.OwnerID = o.ExternalID, o.ID
			keys = append(keys, k)
			h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertKey(ctx, k) })
		}
		h.insertKey(b, func(k *apikey.Key) { k.Owner, k.OwnerID = o.ExternalID, id.New(id.Owner) })
		for second := -4; second <= 4; second++ {
			now := epoch().Add(time.Duration(second) * time.Second)
			want := slices.ContainsFunc(keys, func(k *apikey.Key) bool {
				return k.State(now) == apikey.Active && k.GatewayID != gateways[1]
			})
			same(t, "has active keys", get(h, func(ctx context.Context, tx control.ReadTx) (bool, error) {
				return tx.OwnerHasActiveKeys(ctx, a.ID, o.ID, now)
			}), want)
		}
	})
}

// dataPlaneOwner returns the fields of an owner that the data plane needs.
func dataPlaneOwner(o *owner.Owner) owner.Owner {
	return owner.Owner{ID: o.ID, AccountID: o.AccountID, ExternalID: o.ExternalID, PlanID: o.PlanID, State: o.State, TimeZone: o.TimeZone,
		AnchorDay: o.AnchorDay, CreatedAt: o.CreatedAt}
}

// Guarantee: the data plane reads all plans, and what it needs of all owners. Reading stops with the callback's error or
// when the context ends.
func testPlanSource(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	wantPlans, wantOwners := map[string]plan.Plan{}, map[string]owner.Owner{}
	h.update(func(ctx context.Context, tx control.Tx) error {
		for i := range 3000 {
			o := newOwner([]*account.Account{a, b}[i%2], fmt.Sprint(i))
			o.PlanID, o.State, o.TimeZone, o.AnchorDay = []string{"", id.New(id.Plan)}[i/2%2], []owner.State{owner.Active, owner.Suspended}[i/4%2], []string{"", "UTC"}[i/8%2], i%29
			wantOwners[o.ID] = dataPlaneOwner(o)
			if err := tx.InsertOwner(ctx, o); err != nil {
				return err
			}
		}
		return nil
	})
	for _, of := range []*account.Account{a, b} {
		p := h.insertPlan(of, "free")
		wantPlans[p.ID] = *p
	}
	gotPlans, seen := map[string]plan.Plan{}, 0
	h.must(h.EachPlan(h.Context(), func(p *plan.Plan) error { gotPlans[p.ID] = *p; return nil }))
	h.must(h.EachOwner(h.Context(), func(o *owner.Owner) error {
		seen++
		same(h, "an owner", dataPlaneOwner(o), wantOwners[o.ID])
		return nil
	}))
	same(h, "plans", gotPlans, wantPlans)
	same(h, "owners", seen, len(wantOwners))
	stop, calls := errors.New("enough"), 0
	if err := h.EachPlan(h.Context(), func(*plan.Plan) error { return stop }); !errors.Is(err, stop) {
		h.Errorf("EachPlan returned %v, want the callback's error", err)
	}
	if err := h.EachOwner(h.Context(), func(*owner.Owner) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		h.Errorf("EachOwner returned %v after %d calls, want the callback's error after 1", err, calls)
	}
	ctx, cancel := context.WithCancel(h.Context())
	calls = 0
	if err := h.EachOwner(ctx, func(*owner.Owner) error { calls++; cancel(); return nil }); !errors.Is(err, context.Canceled) || calls == 3000 {
		h.Errorf("EachOwner returned %v after %d calls, want the error of its context before 3000", err, calls)
	}
}
