package snapshot

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
)

// ownerSlot is the place of an owner. Its keys point to it, so that a change of the owner touches none of them. There
// may be as many owners as keys, so it is small.
type ownerSlot struct {
	externalID string   // never changes
	id         [16]byte // zeros if the owner has no record: an earlier version wrote the key
	plan       atomic.Pointer[planSlot]
	calendar   atomic.Pointer[calendar.Own] // nil for that of the plans
	suspended  atomic.Bool
	unrecorded bool // a token names the owner, and there is no record: id is a hash of its external identifier
}

// same reports whether keys with the slots o and p, which may be nil, have the same owner.
func (o *ownerSlot) same(p *ownerSlot) bool {
	if o == nil || p == nil {
		return o == p
	}
	return o == p || o.id == p.id && o.externalID == p.externalID
}

// ownerTable holds the slots of owners, by account and identifier. The holder of Follower.writing uses it.
type ownerTable map[string]map[[16]byte]*ownerSlot

// slot returns the slot of an owner, and makes one if there is none.
func (t ownerTable) slot(accountID string, u [16]byte, externalID string) *ownerSlot {
	of := t[accountID]
	if of == nil {
		of = map[[16]byte]*ownerSlot{}
		t[accountID] = of
	}
	o := of[u]
	if o == nil {
		o = &ownerSlot{id: u, externalID: externalID}
		of[u] = o
	}
	return o
}

// each calls f with the slots of the owner in all accounts: one, or none.
func (t ownerTable) each(ownerID string, f func(of map[[16]byte]*ownerSlot, o *ownerSlot)) {
	u, _ := id.Parse(id.Owner, ownerID)
	for _, of := range t {
		if o := of[u]; o != nil {
			f(of, o)
		}
	}
}

// forget makes o the slot of no owner. Keys of it that have not ended keep the slot.
func (o *ownerSlot) forget() {
	o.plan.Store(nil)
	o.calendar.Store(nil)
	o.suspended.Store(false)
}

// ownerOf returns the slot of the owner of k, which is empty if the owner has not been read yet, or nil without an
// owner. The caller holds writing.
func (f *Follower) ownerOf(k *apikey.Key) *ownerSlot {
	if k.Owner == "" {
		return nil
	}
	u, ok := id.Parse(id.Owner, k.OwnerID)
	if !ok {
		return &ownerSlot{externalID: k.Owner}
	}
	o := f.ownerSlotOf(k.AccountID, u, k.Owner)
	if _, bad := f.unreadableOwners.ids[k.OwnerID]; bad {
		o.suspended.Store(true)
	}
	return o
}

// putOwner puts an owner in force. The caller holds writing.
func (f *Follower) putOwner(record *owner.Owner) {
	u, ok := id.Parse(id.Owner, record.ID)
	if !ok {
		f.cfg.Log.Error("an owner cannot be used", "owner_id", record.ID)
		return
	}
	o := f.ownerSlotOf(record.AccountID, u, record.ExternalID)
	o.plan.Store(f.plans.slot(record.PlanID))
	o.calendar.Store(f.ownCalendar(record))
	o.suspended.Store(record.State == owner.Suspended)
}

// ownCalendar returns what an owner has of its own of the calendar of quotas, or nil.
func (f *Follower) ownCalendar(record *owner.Owner) *calendar.Own {
	if record.TimeZone == "" && record.AnchorDay == 0 {
		return nil
	}
	own := &calendar.Own{Anchor: record.AnchorDay}
	if record.TimeZone != "" {
		var err error
		if own.Zone, err = calendar.Zone(record.TimeZone); err != nil {
			f.cfg.Log.Error("the time zone of an owner cannot be used, and that of its plan is", "owner_id", record.ID, "error", err)
		}
	}
	return own
}

// readOwner puts in force what the source has under the identifier. The caller holds writing.
func (f *Follower) readOwner(ctx context.Context, ownerID string) error {
	o, err := f.cfg.Source.OwnerByID(ctx, ownerID)
	u, _ := id.Parse(id.Owner, ownerID)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		f.unreadableOwners.remove(ownerID)
		for accountID, of := range f.owners {
			if o := of[u]; o != nil {
				o.forget()
				delete(of, u)
				f.forgetName(accountID, o)
			}
		}
		f.published.Add(1)
	case f.isUnreadable(err):
		f.suspendUnreadable(ownerID, err)
	case err != nil:
		return fmt.Errorf("read owner %s: %w", ownerID, err)
	default:
		f.unreadableOwners.remove(ownerID)
		f.putOwner(o)
		f.published.Add(1)
	}
	return nil
}

// suspendUnreadable makes an owner whose record cannot be read count as suspended, as accounts do. The record is read
// again with each read of the change log.
func (f *Follower) suspendUnreadable(ownerID string, err error) {
	if !f.unreadableOwners.add(ownerID) {
		return
	}
	f.cfg.Log.Error("an owner cannot be read and counts as suspended", "owner_id", ownerID, "error", err)
	f.owners.each(ownerID, func(_ map[[16]byte]*ownerSlot, o *ownerSlot) { o.suspended.Store(true) })
	f.published.Add(1)
}

// loadOwners brings the owners up to date with the source. It leaves out the owners of other accounts.
func (f *Follower) loadOwners(ctx context.Context, accounts map[string]*account.Account) error {
	seen := map[[16]byte]bool{} // not needed by the first load
	see := func(ownerID string) {
		if u, ok := id.Parse(id.Owner, ownerID); ok && f.loaded {
			seen[u] = true
		}
	}
	put := func(o *owner.Owner) error {
		if accounts[o.AccountID] != nil {
			see(o.ID)
			f.unreadableOwners.remove(o.ID)
			f.putOwner(o)
		}
		return nil
	}
	var err error
	if f.cfg.Shared == nil {
		err = f.cfg.Source.EachOwner(ctx, put)
	} else {
		err = f.cfg.Shared.Log.EachReadableOwner(ctx, put, func(ownerID string, err error) {
			see(ownerID)
			f.suspendUnreadable(ownerID, err)
		})
	}
	if err != nil {
		return fmt.Errorf("load owners: %w", err)
	}
	if !f.loaded {
		return nil
	}
	for accountID, of := range f.owners {
		for u, o := range of {
			if !seen[u] {
				o.forget()
				delete(of, u)
				f.forgetName(accountID, o)
			}
		}
	}
	f.published.Add(1)
	return nil
}
