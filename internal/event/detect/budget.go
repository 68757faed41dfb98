package detect

import (
	"time"

	"github.com/keygate/keygate/internal/event"
)

// The bounds of the events of one account and type: so many at once, and then one in each raiseInterval. Events are kept for days.
// A client that exceeds a limit again and again, for which it may not even need a key, must not fill the disk.
const (
	raiseBurst    = 10_000
	raiseInterval = time.Second
)

// budget is a token bucket (GCRA) for each account and type of event. It is not safe for concurrent use.
type budget struct {
	full    map[spender]time.Time // when the bucket is full again
	sweepAt time.Time
}

type spender struct {
	account string
	of      event.Type
}

// take takes a token, if there is one.
func (b *budget) take(account string, of event.Type, now time.Time) bool {
	b.sweep(now)
	s := spender{account, of}
	full := b.full[s]
	if full.Before(now) {
		full = now
	}
	// The clock may have been set back.
	if latest := now.Add(raiseBurst * raiseInterval); full.After(latest) {
		full = latest
	}
	ok := full.Sub(now) <= (raiseBurst-1)*raiseInterval
	if ok {
		full = full.Add(raiseInterval)
	}
	if b.full == nil {
		b.full = map[spender]time.Time{}
	}
	b.full[s] = full
	return ok
}

// sweep forgets the buckets that are full, now and then.
func (b *budget) sweep(now time.Time) {
	if now.Before(b.sweepAt) && b.sweepAt.Sub(now) <= forgetEvery {
		return
	}
	b.sweepAt = now.Add(forgetEvery)
	for s, full := range b.full {
		if !full.After(now) {
			delete(b.full, s)
		}
	}
}

// mayRaise reports whether an event of an account may be raised now. It counts the event if so.
func (d *Detector) mayRaise(account string, of event.Type, now time.Time) bool {
	return !d.cfg.Full(account) && d.budget.take(account, of, now)
}
