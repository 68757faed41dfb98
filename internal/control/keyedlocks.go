package control

import (
	"context"
	"sync"
)

// keyedLocks is one lock for each name in use. It is safe for concurrent use.
type keyedLocks struct {
	mu    sync.Mutex
	locks map[string]*keyedLock
}

type keyedLock struct {
	held  chan struct{}
	users int // that hold it or wait; guarded by keyedLocks.mu
}

func newKeyedLocks() *keyedLocks { return &keyedLocks{locks: map[string]*keyedLock{}} }

// lockTable takes the lock of a gateway's routes and settings, for a call of actor.
func (s *Service) lockTable(ctx context.Context, actor *Actor, gatewayID string) (unlock func(), err error) {
	if err := actor.check(); err != nil {
		return nil, err
	}
	return s.tables.lock(ctx, actor.Account.ID+gatewayID)
}

// lock takes the lock of name, first come, first served. The error is ctx.Err(). The caller must
// call unlock once.
func (k *keyedLocks) lock(ctx context.Context, name string) (unlock func(), err error) {
	k.mu.Lock()
	l := k.locks[name]
	if l == nil {
		l = &keyedLock{held: make(chan struct{}, 1)}
		k.locks[name] = l
	}
	l.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.locks, name)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
