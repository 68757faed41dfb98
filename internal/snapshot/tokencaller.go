package snapshot

import (
	"sync"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/token"
)

// tokenCaller is the Caller whom a token identifies, as it was made when the names of owners and plans had a version.
type tokenCaller struct {
	Caller
	names uint64
}

// CallerOf returns the caller whom a verified token of one of the account's issuers identifies. It allocates only for the
// first request with the token, and after owners or plans got or lost their names.
func (f *Follower) CallerOf(accountID string, p *token.Principal) *Caller {
	names := f.names.Load() // before the names are looked up
	if known, ok := p.Caller.Load().(*tokenCaller); ok && known.names == names {
		return &known.Caller
	}
	c := &tokenCaller{names: names}
	c.id = id.Hashed("token", p.IssuerID, p.Subject)
	c.rights = &rights{plan: f.plans.named(accountID, p.Plan)}
	if len(p.Scopes) > 0 {
		c.rights.first, c.rights.more = p.Scopes[0], p.Scopes[1:]
	}
	c.class = &callerClass{classID: classID{kind: TokenCaller, accountID: accountID}}
	c.expires = p.RefusedAt.UnixMicro()
	if p.Owner != "" {
		if c.owner = f.ownerNames.find(accountID, p.Owner); c.owner == nil {
			c.owner = &ownerSlot{externalID: p.Owner, id: id.Hashed("owner", accountID, p.Owner), unrecorded: true}
		}
	}
	p.Caller.Store(c)
	return &c.Caller
}

// ownerNames finds owners by their external identifiers, for the accounts whose tokens name owners. It is safe for
// concurrent use.
type ownerNames struct {
	mu sync.RWMutex
	of map[string]map[string]*ownerSlot // by account
}

func (n *ownerNames) find(accountID, externalID string) *ownerSlot {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.of[accountID][externalID]
}

// has reports whether the owners of the account are found by name.
func (n *ownerNames) has(accountID string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.of[accountID] != nil
}

// nameOwners makes the owners of an account be found by name. The caller holds writing.
func (f *Follower) nameOwners(accountID string) {
	if f.ownerNames.has(accountID) {
		return
	}
	of := make(map[string]*ownerSlot, len(f.owners[accountID]))
	for _, o := range f.owners[accountID] {
		of[o.externalID] = o
	}
	f.ownerNames.mu.Lock()
	defer f.ownerNames.mu.Unlock()
	if f.ownerNames.of == nil {
		f.ownerNames.of = map[string]map[string]*ownerSlot{}
	}
	f.ownerNames.of[accountID] = of
	f.names.Add(1)
}

// forgetNames makes the owners of an account be found by name no more.
func (f *Follower) forgetNames(accountID string) {
	f.ownerNames.mu.Lock()
	defer f.ownerNames.mu.Unlock()
	delete(f.ownerNames.of, accountID)
}

// ownerSlotOf returns the slot of an owner, and makes one if there is none. The caller holds writing.
func (f *Follower) ownerSlotOf(accountID string, u [16]byte, externalID string) *ownerSlot {
	o := f.owners.slot(accountID, u, externalID)
	if !f.ownerNames.has(accountID) {
		return o
	}
	f.ownerNames.mu.Lock()
	defer f.ownerNames.mu.Unlock()
	if of := f.ownerNames.of[accountID]; of[externalID] != o {
		of[externalID] = o
		f.names.Add(1)
	}
	return o
}

// forgetName makes an owner that was deleted be found by name no more.
func (f *Follower) forgetName(accountID string, o *ownerSlot) {
	if !f.ownerNames.has(accountID) {
		return
	}
	f.ownerNames.mu.Lock()
	defer f.ownerNames.mu.Unlock()
	if of := f.ownerNames.of[accountID]; of[o.externalID] == o {
		delete(of, o.externalID)
		f.names.Add(1)
	}
}

// planName is the name of a plan in its account.
type planName struct{ accountID, name string }

// named returns the slot of the account's plan with the name, or nil.
func (t *planTable) named(accountID, name string) *planSlot {
	if name == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName[planName{accountID, name}]
}

// rename notes that the plan in s, which was was, is next. Either may be nil. The caller holds the lock.
func (t *planTable) rename(s *planSlot, was, next *compiledPlan) {
	var before, after planName
	if was != nil {
		before = planName{was.accountID, was.name}
	}
	if next != nil {
		after = planName{next.accountID, next.name}
	}
	if before == after {
		return
	}
	if t.byName[before] == s {
		delete(t.byName, before)
	}
	if next != nil {
		if t.byName == nil {
			t.byName = map[planName]*planSlot{}
		}
		t.byName[after] = s
	}
	t.names.Add(1)
}

// ownerID returns the identifier of the caller's owner; "" without one, and for an owner without a record.
func (c *Caller) ownerID() string {
	if !c.hasOwner() || c.owner.unrecorded {
		return ""
	}
	return id.Format(id.Owner, c.owner.id)
}
