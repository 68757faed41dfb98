package snapshot

import (
	"sync/atomic"
	"time"
)

// usedList is the keys that were used since the last drain: a lock-free stack, linked
// through the keys themselves. Many goroutines push, one takes everything. A key whose nextUsed is
// nil is not on the stack; the last key points at end.
type usedList struct {
	head atomic.Pointer[Key]
	end  Key
}

func newUsedList() *usedList {
	l := &usedList{}
	l.head.Store(&l.end)
	return l
}

// usedInterval is the shortest time, in microseconds, between two uses of a key that are
// both recorded. So a key in heavy use does not cost a write to shared memory for each
// request.
const usedInterval = 1000

// MarkUsed records that k authenticated a request at the given time. It neither allocates
// nor blocks.
func (k *Key) MarkUsed(at time.Time) { k.MarkUsedAt(at.UnixMicro()) }

// MarkUsedAt is MarkUsed for a time in microseconds since 1970.
func (k *Key) MarkUsedAt(at int64) {
	if at < k.used.Load()+usedInterval {
		return
	}
	k.used.Store(at)
	// drain clears nextUsed before it reads used: either it reads this time, or this
	// goroutine sees nil and pushes the key again.
	list := k.class.used
	if k.nextUsed.Load() != nil || !k.nextUsed.CompareAndSwap(nil, &list.end) {
		return
	}
	for {
		head := list.head.Load()
		k.nextUsed.Store(head)
		if list.head.CompareAndSwap(head, k) {
			return
		}
	}
}

// drain calls f for each key on the list and empties it.
func (l *usedList) drain(f func(keyID string, at time.Time)) {
	for k := l.head.Swap(&l.end); k != &l.end; {
		next := k.nextUsed.Swap(nil)
		f(k.ID(), time.UnixMicro(k.used.Load()).UTC())
		k = next
	}
}
