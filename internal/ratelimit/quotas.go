package ratelimit

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/id"
)

// Quotas is what the quotas with one name count, of subjects of one kind. It is immutable.
type Quotas struct {
	keeper *QuotaKeeper
	name   QuotaName
	kind   id.Kind  // of the subjects
	seed   [16]byte // of the name
	budget *AccountBudget
}

// Quotas returns the quotas of subjects of a kind. Their memory counts towards budget, which may be nil.
func (k *QuotaKeeper) Quotas(name QuotaName, kind id.Kind, budget *AccountBudget) *Quotas {
	return &Quotas{keeper: k, name: name, kind: kind, seed: seedOf(&name, kind), budget: budget}
}

// seedOf returns what distinguishes the quotas of a name from those of all others.
func seedOf(n *QuotaName, kind id.Kind) (seed [16]byte) {
	h := sha256.New()
	for _, part := range []string{n.AccountID, n.Limit, n.Meter, n.Unit.String(), string(kind)} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	copy(seed[:], h.Sum(nil))
	return seed
}

// keyOf returns the key of a subject's quota in the table of all quotas.
func (s *Quotas) keyOf(subject [16]byte) (k [16]byte) {
	for i := 0; i < len(k); i += 8 {
		binary.NativeEndian.PutUint64(k[i:], binary.NativeEndian.Uint64(s.seed[i:])^binary.NativeEndian.Uint64(subject[i:]))
	}
	return k
}

// Quota returns the quota of a subject, or nil if this process has none yet. own is what the subject has of its own of
// the calendar. Quota does not allocate.
func (s *Quotas) Quota(subject [16]byte, own *calendar.Own) *Quota {
	q := s.find(subject)
	if q != nil && q.own.Load() != own {
		q.own.Store(own)
	}
	return q
}

// Create does what Quota does, and creates a quota that this process does not have, of the holder. It returns nil if the
// budget has no room for it.
func (s *Quotas) Create(subject [16]byte, own *calendar.Own, holder QuotaHolder) *Quota {
	k := s.keyOf(subject)
	h := hash(&k)
	q := s.create(&s.keeper.shards[shardOf(h)], h, k, subject, holder)
	if q != nil {
		q.own.Store(own)
	}
	return q
}

// find returns the quota of a subject, or nil if this process has none.
func (s *Quotas) find(subject [16]byte) *Quota {
	k := s.keyOf(subject)
	h := hash(&k)
	return s.keeper.shards[shardOf(h)].find(h, &k)
}

// quotaShard is a part of the table of all quotas.
type quotaShard struct {
	mu      sync.Mutex // held to change the index, not to read it
	current atomic.Pointer[index[Quota]]
}

func (s *quotaShard) find(h uint64, k *[16]byte) *Quota {
	if n := s.current.Load().find(h, k); n != nil && isCounting(n) {
		return &n.value
	}
	return nil
}

// create finds or creates a quota, under the lock.
func (s *Quotas) create(shard *quotaShard, h uint64, k, subject [16]byte, holder QuotaHolder) *Quota {
	shard.mu.Lock()
	defer shard.mu.Unlock()
	x := shard.current.Load()
	if n := x.find(h, &k); n != nil && isCounting(n) {
		return &n.value
	}
	if !s.budget.fits(quotaSize) {
		return nil
	}
	s.budget.add(quotaSize)
	s.keeper.count.Add(1)
	n := &node[Quota]{key: k}
	q := &n.value
	q.keeper, q.name, q.subject, q.holder = s.keeper, s, subject, holder
	q.state.Store(&quotaState{span: &quotaSpan{}})
	if x.full() || x.find(h, &k) != nil {
		larger := x.with(isCounting)
		x = &larger
	}
	x.add(n)
	shard.current.Store(x)
	return q
}

// isCounting reports whether the quota of n is not closed.
func isCounting(n *node[Quota]) bool { return quotaWord(n.value.word.Load()) != closedQuota }

// key returns the key of the quota in the store.
func (q *Quota) key() QuotaKey {
	return QuotaKey{QuotaName: q.name.name, Subject: id.Format(q.name.kind, q.subject)}
}

// each calls f for every quota.
func (k *QuotaKeeper) each(f func(q *Quota)) {
	for i := range k.shards {
		k.shards[i].current.Load().each(func(n *node[Quota]) {
			if isCounting(n) {
				f(&n.value)
			}
		})
	}
}

// byKey returns the quota with a key of the store, or nil if this process has none.
func (k *QuotaKeeper) byKey(key *QuotaKey) *Quota {
	for _, kind := range []id.Kind{id.Owner, id.Key} {
		if subject, ok := id.Parse(kind, key.Subject); ok {
			return k.Quotas(key.QuotaName, kind, nil).find(subject)
		}
	}
	return nil
}
