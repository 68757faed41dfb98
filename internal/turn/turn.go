// Package turn shares places out between accounts. A place is held by what must not happen
// too often at once, for example the reading of a document. Each account has a number of
// places at most, and so have all of them together. Who finds none free waits for a bounded
// time: first come, first served within an account, and in turn between accounts, so that
// an account with many waiters never delays another one for which a place is free.
package turn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrNone means that no place became free in time, or that too many wait for one already.
var ErrNone = errors.New("no place is free")

// Config says how many places there are.
type Config struct {
	PerAccount int           // places of one account
	All        int           // places of all accounts together; 0 means that only PerAccount counts
	Waiting    int           // how many of one account may wait at once
	Wait       time.Duration // how long each of them waits at most
}

// Places are places that accounts share. It is safe for concurrent use.
type Places struct {
	cfg Config

	mu       sync.Mutex
	taken    int
	accounts map[string]*share // those that hold a place or wait for one
	queue    []*share          // those that wait, in the order of their turns
}

// share is what one account has of the places.
type share struct {
	taken   int
	waiting []*waiter // first come, first
}

type waiter struct{ granted chan struct{} } // closed when the place is given

// New returns places that are all free.
func New(cfg Config) *Places { return &Places{cfg: cfg, accounts: map[string]*share{}} }

// Take takes a place for an account, and waits for one if none is free. The caller must call
// release once; further calls of it do nothing. The error is ErrNone, or that of ctx if it
// ends first.
func (p *Places) Take(ctx context.Context, account string) (release func(), err error) {
	p.mu.Lock()
	s := p.accounts[account]
	if s == nil {
		s = &share{}
		p.accounts[account] = s
	}
	if len(s.waiting) == 0 && p.isFree(s) {
		p.taken++
		s.taken++
		p.mu.Unlock()
		return p.release(account, s), nil
	}
	if len(s.waiting) >= p.cfg.Waiting {
		p.forget(account, s)
		p.mu.Unlock()
		return nil, ErrNone
	}
	w := &waiter{granted: make(chan struct{})}
	if s.waiting = append(s.waiting, w); len(s.waiting) == 1 {
		p.queue = append(p.queue, s)
	}
	p.mu.Unlock()

	timer := time.NewTimer(p.cfg.Wait)
	defer timer.Stop()
	select {
	case <-w.granted:
		return p.release(account, s), nil
	case <-timer.C:
		err = ErrNone
	case <-ctx.Done():
		err = ctx.Err()
	}
	if p.leave(account, s, w) {
		return nil, err
	}
	return p.release(account, s), nil // given meanwhile
}

// isFree reports whether a place is free for s.
func (p *Places) isFree(s *share) bool {
	return s.taken < p.cfg.PerAccount && (p.cfg.All == 0 || p.taken < p.cfg.All)
}

// release returns the function that gives back a place of s.
func (p *Places) release(account string, s *share) func() {
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken--
		s.taken--
		p.grant()
		p.forget(account, s)
	})
}

// grant gives the free places to those whose turn it is.
func (p *Places) grant() {
	for i := 0; i < len(p.queue); {
		s := p.queue[i]
		if !p.isFree(s) {
			i++
			continue
		}
		p.taken++
		s.taken++
		close(s.waiting[0].granted)
		s.waiting = slices.Delete(s.waiting, 0, 1)
		p.queue = slices.Delete(p.queue, i, i+1)
		if len(s.waiting) > 0 {
			p.queue = append(p.queue, s)
		}
	}
}

// leave takes w out of the queue. It returns false if w was given a place already.
func (p *Places) leave(account string, s *share, w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return false
	}
	if s.waiting = slices.Delete(s.waiting, i, i+1); len(s.waiting) == 0 {
		at := slices.Index(p.queue, s)
		p.queue = slices.Delete(p.queue, at, at+1)
	}
	p.forget(account, s)
	return true
}

// forget removes the account of s if it has nothing here.
func (p *Places) forget(account string, s *share) {
	if s.taken == 0 && len(s.waiting) == 0 {
		delete(p.accounts, account)
	}
}
