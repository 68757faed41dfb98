package writer

import (
	"sync"

	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/service"
)

// tailSize is how many requests a Tail holds that nobody has taken.
const tailSize = 256

// tails is the Tails of each account. It has its own lock, so that Take never waits for a reader.
type tails struct {
	mu  sync.Mutex
	all map[string]map[*Tail]struct{}
}

// Tail receives the requests of one account that a filter matches, as they are written on this node. It
// holds at most 256; beyond them, the oldest are counted as skipped. Close it after use.
type Tail struct {
	of      *tails
	account string
	filter  requestlog.Filter
	ready   service.Signal

	mu      sync.Mutex
	waiting []requestlog.Record
	skipped int64
}

// Follow returns a Tail of the requests that f matches and that are written from now on. Since and Until
// of f are ignored.
func (r *Writer) Follow(accountID string, f requestlog.Filter) *Tail {
	t := &Tail{of: &r.tails, account: accountID, filter: f, ready: service.NewSignal()}
	r.tails.mu.Lock()
	defer r.tails.mu.Unlock()
	if r.tails.all == nil {
		r.tails.all = map[string]map[*Tail]struct{}{}
	}
	if r.tails.all[accountID] == nil {
		r.tails.all[accountID] = map[*Tail]struct{}{}
	}
	r.tails.all[accountID][t] = struct{}{}
	return t
}

// Ready has a value when Take has something to return.
func (t *Tail) Ready() <-chan struct{} { return t.ready }

// Take returns the requests that have arrived since the last call, oldest first, and how many before them
// were skipped, by this Tail or by the sampling of the log.
func (t *Tail) Take() (list []requestlog.Request, skipped int64) {
	t.mu.Lock()
	records := t.waiting
	skipped, t.waiting, t.skipped = t.skipped, nil, 0
	t.mu.Unlock()
	list = make([]requestlog.Request, len(records))
	for i := range records {
		list[i] = records[i].Request()
	}
	return list, skipped
}

// Close ends the Tail. It may be called several times.
func (t *Tail) Close() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	delete(t.of.all[t.account], t)
	if len(t.of.all[t.account]) == 0 {
		delete(t.of.all, t.account)
	}
}

// publish passes written requests to the Tails of their accounts.
func (t *tails) publish(records []requestlog.Record, left []requestlog.LeftOut) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == 0 {
		return
	}
	for i := range records {
		for one := range t.all[records[i].AccountID] {
			one.add(&records[i])
		}
	}
	for _, l := range left {
		for one := range t.all[l.AccountID] {
			one.skip(l.Count)
		}
	}
}

func (t *Tail) add(r *requestlog.Record) {
	if !t.filter.Matches(r) {
		return
	}
	t.mu.Lock()
	if len(t.waiting) == tailSize {
		copy(t.waiting, t.waiting[1:])
		t.waiting = t.waiting[:tailSize-1]
		t.skipped++
	}
	t.waiting = append(t.waiting, *r)
	t.mu.Unlock()
	t.ready.Notify()
}

func (t *Tail) skip(n int64) {
	t.mu.Lock()
	t.skipped += n
	t.mu.Unlock()
	t.ready.Notify()
}
