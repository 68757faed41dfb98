package snapshot

import (
	"container/heap"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
)

// A revoked key is named in the audit log and the request log for revokedFor after its revocation
// (contract, section 7), as long as its account has at most maxRevokedOfAccount revoked keys and
// there are at most maxRevoked in all. A key takes about 100 bytes.
const (
	revokedFor          = 24 * time.Hour
	maxRevokedOfAccount = 100_000
	maxRevoked          = 500_000
)

// revokedKeys holds the keys that were revoked a short time ago. When there are too many of
// an account, its oldest are dropped; when there are too many in all, the oldest of the
// account that has the most. Only requests with a key that is not in force read it. It is
// safe for concurrent use.
type revokedKeys struct {
	ofAccount, inAll int // the bounds

	mu       sync.RWMutex
	keys     map[shortDigest]revokedKey
	accounts map[string]*revokedAccount
}

// shortDigest is the first half of a digest. It is still infeasible to find a second key for it.
type shortDigest [16]byte

func shortened(d *apikey.Digest) shortDigest { return shortDigest(d[:16]) }

type revokedKey struct {
	id      [16]byte
	account *revokedAccount
	at      int64 // microseconds since 1970
}

// revokedAccount is the revoked keys of an account, as a heap with the oldest first.
type revokedAccount struct {
	id   string
	keys []revokedAt
}

type revokedAt struct {
	at     int64
	digest shortDigest
}

func newRevokedKeys(ofAccount, inAll int) *revokedKeys {
	return &revokedKeys{ofAccount: ofAccount, inAll: inAll, keys: map[shortDigest]revokedKey{}, accounts: map[string]*revokedAccount{}}
}

// add remembers the revoked key k, unless its time is over. now is in microseconds since
// 1970.
func (r *revokedKeys) add(k *apikey.Key, now int64) {
	u, ok := id.Parse(id.Key, k.ID)
	at := k.RevokedAt.UnixMicro()
	if !ok || now-at > revokedFor.Microseconds() {
		return
	}
	r.addShort(shortened(&k.Digest), u, k.AccountID, at)
}

// addShort remembers the key with the digest and the identifier u, which was revoked at a time within revokedFor.
func (r *revokedKeys) addShort(digest shortDigest, u [16]byte, accountID string, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.keys[digest]; known {
		return
	}
	a := r.accounts[accountID]
	if a == nil {
		a = &revokedAccount{id: accountID}
		r.accounts[accountID] = a
	}
	r.keys[digest] = revokedKey{id: u, account: a, at: at}
	heap.Push(a, revokedAt{at, digest})
	if len(a.keys) > r.ofAccount {
		r.dropOldest(a)
	}
	if len(r.keys) > r.inAll {
		r.dropOldest(r.largest())
	}
}

// find returns the identifier of the key with the digest d, if an account revoked it within
// revokedFor before now, in microseconds since 1970.
func (r *revokedKeys) find(d *apikey.Digest, now int64) (keyID [16]byte, accountID string, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.keys[shortened(d)]
	if !ok || now-k.at > revokedFor.Microseconds() {
		return keyID, "", false
	}
	return k.id, k.account.id, true
}

// sweep drops the keys whose time is over.
func (r *revokedKeys) sweep(now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.accounts {
		for len(a.keys) > 0 && now-a.keys[0].at > revokedFor.Microseconds() {
			r.dropOldest(a)
		}
	}
}

func (r *revokedKeys) dropOldest(a *revokedAccount) {
	if oldest, ok := heap.Pop(a).(revokedAt); ok {
		delete(r.keys, oldest.digest)
	}
	if len(a.keys) == 0 {
		delete(r.accounts, a.id)
	}
}

func (r *revokedKeys) largest() (largest *revokedAccount) {
	for _, a := range r.accounts {
		if largest == nil || len(a.keys) > len(largest.keys) {
			largest = a
		}
	}
	return largest
}

// Len, Less and Swap implement heap.Interface, with Push and Pop.
func (a *revokedAccount) Len() int           { return len(a.keys) }
func (a *revokedAccount) Less(i, j int) bool { return a.keys[i].at < a.keys[j].at }
func (a *revokedAccount) Swap(i, j int)      { a.keys[i], a.keys[j] = a.keys[j], a.keys[i] }

// Push implements heap.Interface.
func (a *revokedAccount) Push(k any) {
	if k, ok := k.(revokedAt); ok {
		a.keys = append(a.keys, k)
	}
}

// Pop implements heap.Interface.
func (a *revokedAccount) Pop() any {
	last := a.keys[len(a.keys)-1]
	a.keys = a.keys[:len(a.keys)-1]
	return last
}

// RevokedKey returns the identifier and the account of the key with the digest d, if it was
// revoked within the last 24 hours. It does not allocate. Responses must not depend on it.
func (f *Follower) RevokedKey(d apikey.Digest) (keyID [16]byte, accountID string, ok bool) {
	return f.revoked.find(&d, f.cfg.Now().Wall/1000)
}
