package ratelimit

import (
	"sync/atomic"

	"github.com/keygate/keygate/internal/clientip"
)

// Bounds of the buckets of limits that count each address. A bucket is one address at one limit.
const (
	// MaxAddresses is how many buckets of addresses this node has, and reservedAddresses how many more for accounts
	// with fewer than fewAddresses, so that no flood at one account takes the places of another.
	MaxAddresses      = 65_536
	reservedAddresses = 4096
	fewAddresses      = 256
	// maxNetworks is the number of networks of one site, of which each has a bucket at a limit. When there
	// would be more, the site has one bucket.
	maxNetworks = 256
)

// addressSlots counts the buckets of addresses. It is part of a Budget.
type addressSlots struct {
	used   atomic.Int64
	shared atomic.Int64 // requests that used the bucket of clientip.Others
}

// Addresses returns the number of buckets of addresses.
func (b *Budget) Addresses() int64 { return b.slots.used.Load() }

// AddressesShared returns how often the bucket of an address was the one that addresses without a place share.
func (b *Budget) AddressesShared() int64 { return b.slots.shared.Load() }

// takeSlot takes the place of a bucket of an address. It reports false if there is none for the account.
func (a *AccountBudget) takeSlot() bool {
	if a == nil {
		return true
	}
	most := int64(MaxAddresses)
	if a.addresses.Add(1) <= fewAddresses {
		most += reservedAddresses
	}
	for {
		used := a.all.slots.used.Load()
		if used >= MaxAddresses/4*3 {
			a.all.short.Notify()
		}
		if used >= most {
			a.addresses.Add(-1)
			return false
		}
		if a.all.slots.used.CompareAndSwap(used, used+1) {
			return true
		}
	}
}

// freeSlots gives n places back.
func (a *AccountBudget) freeSlots(n int64) {
	if a != nil && n != 0 {
		a.addresses.Add(-n)
		a.all.slots.used.Add(-n)
	}
}

// shareOthers counts a request that uses the bucket of clientip.Others.
func (a *AccountBudget) shareOthers() {
	if a != nil {
		a.all.slots.shared.Add(1)
	}
}

// addressShard is what a bucketShard has in addition in a set of buckets of addresses. Its shard's lock guards it,
// except for reading sites. All networks of a site are in the same shard.
type addressShard struct {
	sites    atomic.Int64           // number of sites that have a bucket
	slots    int64                  // number of buckets that have a place
	networks map[clientip.Group]int // number of the networks with a bucket, for each site
}

// NewAddressBuckets is NewBuckets for a limit that counts each address. Use its buckets by Address only.
func (s *Sharing) NewAddressBuckets(n Name, p *Params, budget *AccountBudget) *Buckets {
	b := s.NewBuckets(n, p, budget)
	b.addresses = new([shards]addressShard)
	return b
}

// Address returns the bucket of the addresses of a group, and its parameters. If more than maxNetworks networks
// of a site have a bucket, the bucket is the site's, until that is full and dropped. If there is no place for
// another bucket, it is the one of clientip.Others. The bucket is nil if the budget has no room even for that.
// Address allocates only to create the bucket.
func (b *Buckets) Address(group clientip.Group) (*Params, *Bucket) {
	site, isNetwork := group.Site()
	siteHash := hash((*[16]byte)(&site))
	at := shardOf(siteHash)
	if g := b.shards[at].current.Load(); g != nil {
		if isNetwork && b.addresses[at].sites.Load() > 0 {
			if n := g.buckets.find(siteHash, (*[16]byte)(&site)); n != nil && n.value.state.Load() != closed {
				return g.params, &n.value
			}
		}
		if n := g.buckets.find(hash((*[16]byte)(&group)), (*[16]byte)(&group)); n != nil && n.value.state.Load() != closed {
			return g.params, &n.value
		}
	}
	if p, one := b.address(at, group, site, isNetwork); one != nil {
		return p, one
	}
	b.budget.shareOthers()
	return b.Bucket(clientip.Others)
}

// address finds or creates the bucket of a group in the shard at, under the lock. It returns nil if there is no
// place for it.
func (b *Buckets) address(at uint64, group, site clientip.Group, isNetwork bool) (*Params, *Bucket) {
	s, in := &b.shards[at], &b.addresses[at]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return b.params.Load(), droppedBucket()
	}
	if isNetwork {
		if p, one := b.existing(s, site); one != nil {
			return p, one
		}
	}
	if p, one := b.existing(s, group); one != nil {
		return p, one
	}
	if !b.budget.fits(b.sizeOfOne()) || !b.budget.takeSlot() {
		return nil, nil
	}
	in.slots++
	switch {
	case !isNetwork:
	case in.networks[site] >= maxNetworks:
		group = site
		in.sites.Add(1)
	default:
		in.add(site)
	}
	return b.create(s, group)
}

// add counts a network of the site.
func (in *addressShard) add(site clientip.Group) {
	if in.networks == nil {
		in.networks = map[clientip.Group]int{}
	}
	in.networks[site]++
}

// recount counts the buckets that a sweep or Drop has left in a shard, and gives the places of the others
// back. The caller holds the shard's lock.
func (b *Buckets) recount(at int) {
	if b.addresses == nil {
		return
	}
	in, before := &b.addresses[at], b.addresses[at].slots
	in.slots, in.networks = 0, nil
	sites := int64(0)
	if g := b.shards[at].current.Load(); g != nil {
		g.buckets.each(func(n *node[Bucket]) {
			group := clientip.Group(n.key)
			if group == clientip.Others || n.value.state.Load() == closed {
				return
			}
			in.slots++
			switch site, isNetwork := group.Site(); {
			case isNetwork:
				in.add(site)
			case group.IsSite():
				sites++
			}
		})
	}
	in.sites.Store(sites)
	b.budget.freeSlots(before - in.slots)
}
