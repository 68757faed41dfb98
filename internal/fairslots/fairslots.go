// Package fairslots shares slots out between accounts. Work of which only so much may run at once,
// for example the reading of documents, takes a slot for each piece. The number of slots of one
// account, and of all accounts together, is bounded. If no slot is free, Take waits for a bounded
// time: first come, first served within an account, and in turn between accounts, so that an
// account with many waiters never delays another account for which a slot is free.
package fairslots

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrNone means that no slot became free in time, or that too many callers wait already.
var ErrNone = errors.New("no slot is free")

// Config says how many slots there are.
type Config struct {
	PerAccount int           // slots of one account
	All        int           // slots of all accounts together; 0 means that only PerAccount counts
	Waiting    int           // how many of one account may wait at once
	Wait       time.Duration // how long each waiter waits at most
}

// Slots are slots that accounts share. It is safe for concurrent use.
type Slots struct {
	cfg Config

	mu       sync.Mutex
	taken    int
	accounts map[string]*share // accounts that hold a slot or wait for one
	queue    []*share          // accounts that wait, in the order of their turns
}

// share is what one account has of the slots.
type share struct {
	taken   int
	waiting []*waiter // first come, first
}

type waiter struct{ granted chan struct{} } // closed when the slot is given

// New returns slots that are all free.
func New(cfg Config) *Slots { return &Slots{cfg: cfg, accounts: map[string]*share{}} }

// Take takes a slot for an account, and waits for one if none is free. The caller must call
// release once; further calls of it do nothing. The error is ErrNone, or ctx.Err() if it
// ends first.
func (p *Slots) Take(ctx context.Context, account string) (release func(), err error) {
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

// isFree reports whether a slot is free for s.
func (p *Slots) isFree(s *share) bool {
	return s.taken < p.cfg.PerAccount && (p.cfg.All == 0 || p.taken < p.cfg.All)
}

// release returns the function that gives back a slot of s.
func (p *Slots) release(account string, s *share) func() {
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken--
		s.taken--
		p.grant()
		p.forget(account, s)
	})
}

// grant gives the free slots to those whose turn it is.
func (p *Slots) grant() {
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

// leave takes w out of the queue. It returns false if w was given a slot already.
func (p *Slots) leave(account string, s *share, w *waiter) bool {
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
func (p *Slots) forget(account string, s *share) {
	if s.taken == 0 && len(s.waiting) == 0 {
		delete(p.accounts, account)
	}
}
