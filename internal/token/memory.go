package token

import (
	"container/heap"
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of the memory of verified tokens on a node (docs/limits.md).
const (
	MaxRemembered      = 262_144
	MaxRememberedBytes = 64 << 20
)

const (
	memoryShards = 64
	// rememberedBytes is what a token takes beside its principal: its digest in the map, and what the memory knows of it.
	rememberedBytes = 192
	// chances is how many tokens at most are passed over because they were used, when one must go.
	chances = 32
)

// digest is the SHA-256 of a token.
type digest [sha256.Size]byte

// usualBytes is a length that few tokens exceed.
const usualBytes = 2 << 10

// digestOf returns the digest of a token. It does not allocate. A text that is too long for a token has the digest of
// none.
func digestOf(compact string) digest {
	if len(compact) > usualBytes {
		return digestOfLong(compact)
	}
	var b [usualBytes]byte
	n := copy(b[:], compact)
	return sha256.Sum256(b[:n])
}

// digestOfLong is digestOf for long tokens. It has a function of its own for the size of its array.
//
//go:noinline
func digestOfLong(compact string) digest {
	if len(compact) > MaxBytes {
		return digest{}
	}
	var b [MaxBytes]byte
	n := copy(b[:], compact)
	return sha256.Sum256(b[:n])
}

// Memory remembers the tokens that were verified, by their SHA-256, until they expire or their issuer changes. When it
// is full, the account that takes the most of it loses a token, by the CLOCK algorithm: the oldest one that was not used
// since it was looked at the last time. So no account can displace the tokens of one that takes less. It is safe for
// concurrent use.
type Memory struct {
	maxTokens, maxBytes int

	shards [memoryShards]memoryShard

	mu       sync.Mutex // before the lock of a shard
	tokens   int
	bytes    int
	accounts map[string]*ofAccount
	largest  accountHeap
}

// memoryShard has the tokens with some digests.
type memoryShard struct {
	mu     sync.RWMutex
	tokens map[digest]*remembered
}

// ofAccount is the tokens of an account.
type ofAccount struct {
	id     string
	bytes  int
	index  int         // in the heap
	oldest *remembered // of a ring, in the order in which they are looked at; nil for none
}

// remembered is a token that was verified.
type remembered struct {
	principal  *Principal
	generation uint64        // of the issuer
	denials    atomic.Uint64 // version of the denials that it was checked against
	used       atomic.Bool   // since it was looked at the last time
	digest     digest
	bytes      int

	same *remembered // the same token as it was verified for another issuer: accounts may have issuers with one URL

	account    *ofAccount
	next, prev *remembered // of the ring
}

// NewMemory returns an empty memory with the bounds of a node.
func NewMemory() *Memory { return newMemory(MaxRemembered, MaxRememberedBytes) }

func newMemory(maxTokens, maxBytes int) *Memory {
	m := &Memory{maxTokens: maxTokens, maxBytes: maxBytes, accounts: map[string]*ofAccount{}}
	for i := range m.shards {
		m.shards[i].tokens = map[digest]*remembered{}
	}
	return m
}

func (m *Memory) shard(d digest) *memoryShard { return &m.shards[d[0]%memoryShards] }

// Len returns how many tokens are remembered, and about how many bytes they take.
func (m *Memory) Len() (tokens, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tokens, m.bytes
}

// find returns whom a token identifies, if it was verified for one of the issuers as they are now and would not be
// refused at now. It does not allocate.
func (m *Memory) find(d digest, issuers []*Issuer, now time.Time) *Principal {
	s := m.shard(d)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for r := s.tokens[d]; r != nil; r = r.same {
		for _, i := range issuers {
			if i.record.ID == r.principal.IssuerID && r.isValid(i, now) {
				if !r.used.Load() {
					r.used.Store(true)
				}
				return r.principal
			}
		}
	}
	return nil
}

// isValid reports whether a token that was verified for an earlier state of the issuer is valid for the present one.
// A token for which there are new denials is compared with those alone, so that denials cost no signatures.
func (r *remembered) isValid(i *Issuer, now time.Time) bool {
	if r.generation != i.generation || !now.Before(r.principal.RefusedAt) {
		return false
	}
	version := i.denials.Version()
	if r.denials.Load() == version {
		return true
	}
	if i.Denies(r.principal, now) {
		return false
	}
	r.denials.Store(version)
	return true
}

// remember remembers a token that was verified for i, as it was when its denials had the version. A token that the
// memory has no room for at all is not remembered.
func (m *Memory) remember(d digest, i *Issuer, denials uint64, p *Principal) {
	r := &remembered{principal: p, generation: i.generation, digest: d, bytes: rememberedBytes + p.size()}
	r.denials.Store(denials)
	if r.bytes > m.maxBytes {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before := m.known(d, p.IssuerID); before != nil {
		if before.generation > r.generation {
			return
		}
		m.forget(before)
	}
	for m.tokens+1 > m.maxTokens || m.bytes+r.bytes > m.maxBytes {
		m.forget(m.largest[0].choose())
	}
	m.add(r, i.record.AccountID)
}

// known returns the token as it is remembered for an issuer, or nil. The caller holds m.mu.
func (m *Memory) known(d digest, issuerID string) *remembered {
	r := m.shard(d).tokens[d] // only who holds m.mu changes it
	for r != nil && r.principal.IssuerID != issuerID {
		r = r.same
	}
	return r
}

// add adds a token to an account. The caller holds m.mu.
func (m *Memory) add(r *remembered, accountID string) {
	a := m.accounts[accountID]
	if a == nil {
		a = &ofAccount{id: accountID}
		m.accounts[accountID] = a
		heap.Push(&m.largest, a)
	}
	r.account = a
	if a.oldest == nil {
		a.oldest, r.next, r.prev = r, r, r
	} else {
		r.next, r.prev = a.oldest, a.oldest.prev
		r.next.prev, r.prev.next = r, r
	}
	m.count(a, 1, r.bytes)
	s := m.shard(r.digest)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.same = s.tokens[r.digest]
	s.tokens[r.digest] = r
}

// count counts tokens and bytes of an account. The caller holds m.mu.
func (m *Memory) count(a *ofAccount, tokens, bytes int) {
	m.tokens += tokens
	m.bytes += bytes
	a.bytes += bytes
	heap.Fix(&m.largest, a.index)
}

// choose returns the token that the account is to lose. The caller holds the memory's lock.
func (a *ofAccount) choose() *remembered {
	for range chances {
		if !a.oldest.used.Swap(false) {
			break
		}
		a.oldest = a.oldest.next
	}
	return a.oldest
}

// forget removes a token. The caller holds m.mu.
func (m *Memory) forget(r *remembered) {
	a := r.account
	if r.next == r {
		a.oldest = nil
	} else {
		r.next.prev, r.prev.next = r.prev, r.next
		if a.oldest == r {
			a.oldest = r.next
		}
	}
	m.count(a, -1, -r.bytes)
	if a.oldest == nil {
		heap.Remove(&m.largest, a.index)
		delete(m.accounts, a.id)
	}
	s := m.shard(r.digest)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.tokens[r.digest]
	if at == r {
		if s.tokens[r.digest] = r.same; r.same == nil {
			delete(s.tokens, r.digest)
		}
		return
	}
	for at.same != r {
		at = at.same
	}
	at.same = r.same
}

// Trim forgets the tokens that would be refused at now, and those of issuers that current does not return any more, or
// returns with another generation. It takes the lock for each account anew, so that it holds up nobody for long.
func (m *Memory) Trim(now time.Time, current func(issuerID string) *Issuer) {
	m.mu.Lock()
	accounts := make([]string, 0, len(m.accounts))
	for id := range m.accounts {
		accounts = append(accounts, id)
	}
	m.mu.Unlock()
	for _, id := range accounts {
		m.trimAccount(id, now, current)
	}
}

func (m *Memory) trimAccount(id string, now time.Time, current func(issuerID string) *Issuer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.accounts[id]
	if a == nil {
		return
	}
	var ended []*remembered
	for r := a.oldest; ; {
		if i := current(r.principal.IssuerID); i == nil || i.generation != r.generation || !now.Before(r.principal.RefusedAt) {
			ended = append(ended, r)
		}
		if r = r.next; r == a.oldest {
			break
		}
	}
	for _, r := range ended {
		m.forget(r)
	}
}

// accountHeap is a heap whose first account takes the most bytes.
type accountHeap []*ofAccount

func (h accountHeap) Len() int           { return len(h) }
func (h accountHeap) Less(i, j int) bool { return h[i].bytes > h[j].bytes }
func (h accountHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push adds an account, for package heap.
func (h *accountHeap) Push(x any) {
	a, _ := x.(*ofAccount)
	a.index = len(*h)
	*h = append(*h, a)
}

// Pop removes the last account, for package heap.
func (h *accountHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
