package ratelimit

import (
	"math"
	"sync/atomic"
)

// A dailyWord is the state of one daily count: how many requests of the day have passed,
// and how many more may pass before another range must be reserved in the store.
//
//	bits  0–29  used: at most 10⁹
//	bits 30–53  left of the reserved range: at most half a hundredth of the cap, or 1
//	bits 54–62  the UTC day, modulo 512
//
// Only the Reserver changes a word with nothing left, and it resets every word when the
// day changes, so days that are equal modulo 512 cannot be confused.
type dailyWord uint64

const (
	closedDaily dailyWord = math.MaxUint64

	usedBits = 30
	leftBits = 24
	oneUsed  = dailyWord(1)
	oneLeft  = dailyWord(1) << usedBits
)

func packDaily(day, used, left int64) dailyWord {
	return dailyWord(day&511)<<(usedBits+leftBits) | dailyWord(left)<<usedBits | dailyWord(used)
}

func (w dailyWord) used() int64 { return int64(w & (1<<usedBits - 1)) }
func (w dailyWord) left() int64 { return int64(w >> usedBits & (1<<leftBits - 1)) }

// isOf reports whether w counts the given day.
func (w dailyWord) isOf(day int64) bool { return w>>(usedBits+leftBits) == dailyWord(day&511) }

// Daily is one daily cap in force. A Reserver creates it.
type Daily struct {
	word  atomic.Uint64 // a dailyWord
	limit *dailyLimit
	key   [16]byte     // identifier of the key's bucket, for a limit with per: key
	own   atomic.Int64 // the key's own cap; 0 if the limit's applies

	account atomic.Pointer[AccountBudget] // of the account; nil if the limit has it

	queued atomic.Bool // it is in the Reserver's queue
	next   *Daily      // in the queue

	lost    atomic.Int64 // requests of the day that others may have lost: processes that crashed, and nodes that hold reserved requests
	waiting atomic.Int64 // calls of Reserver.Wait
	wanted  atomic.Bool  // a request has used what was reserved, so that more may be reserved
	refresh atomic.Bool  // ask the store even if nothing has changed here
	asked   atomic.Int64 // when the store was asked last, in Unix nanoseconds

	// Used only by the Reserver's goroutine.
	wasted           int64     // this node's used requests that have not passed: a range that could not be given back
	others           int64     // the used requests in word that other nodes have written
	saved, savedLost int64     // Used and Lost of this node in the store for the day of word; -1 if unknown
	claims           uint32    // number of claims that were made, so that only the last one is saved
	seen             dailyWord // word at the last sweep
	seenHeld         dailyWord // word when it was last looked at for an idle range
}

// set sets the day's count. No request may use d meanwhile, unless d has no word yet.
func (d *Daily) set(day int64, c knownCount) {
	d.others, d.wasted, d.saved, d.savedLost = c.used-c.own, c.ownLost, c.own, 0
	d.lost.Store(c.lost)
	d.word.Store(uint64(packDaily(day, c.used, 0)))
}

func (d *Daily) load() dailyWord { return dailyWord(d.word.Load()) }

func (d *Daily) swap(from, to dailyWord) bool {
	return d.word.CompareAndSwap(uint64(from), uint64(to))
}

// cap returns the number of requests that d allows in a day.
func (d *Daily) cap() int64 {
	if own := d.own.Load(); own > 0 {
		return own
	}
	return d.limit.capacity.Load()
}

// charged asks for another range when half of the last one is used. w is the state after a
// charge.
func (d *Daily) charged(w dailyWord) {
	capacity := d.cap()
	size := d.rangeOf(capacity)
	left := w.left()
	if size > 0 && left*2 <= size && w.used()+left < capacity && left*2 <= d.ahead(capacity, w.used()) {
		d.wanted.Store(true)
		d.limit.reserver.enqueue(d)
	}
}

// refund undoes a charge of the day. Unlike a bucket, a count can be refunded whatever has
// happened since, unless the day is over.
func (d *Daily) refund(day int64) {
	for {
		w := d.load()
		if w == closedDaily || !w.isOf(day) || w.used() == 0 {
			return
		}
		next := w - oneUsed
		if w.left() < d.rangeOf(d.cap()) {
			next += oneLeft
		}
		if d.swap(w, next) {
			d.limit.reserver.enqueue(d) // the store's count, or the bound on what a crash may lose, may be wrong now
			return
		}
	}
}

// rangeOf returns the size of the ranges in which d's capacity is reserved. It is the most that the next crash
// may lose: half of what is left of the day's budget. It is 0 if that is less than one request, as for every cap
// below 200. Then one request is reserved at a time, while a call of Reserver.Wait asks for it.
func (d *Daily) rangeOf(capacity int64) int64 {
	return max(0, budgetOf(capacity)-d.lost.Load()) / 2
}

// refused asks the store again, at most once a second, when the cap is used up and other nodes have
// reserved a part of it: they may have given some of that back.
func (d *Daily) refused(wall int64) {
	if r := d.limit.reserver; r != nil && r.nodes() > 1 {
		if last := d.asked.Load(); !isRecent(last, wall, second) && d.asked.CompareAndSwap(last, wall) {
			d.refresh.Store(true)
			r.enqueue(d)
		}
	}
}

// ahead returns how much to reserve when all nodes together have used used requests of the capacity:
// the range, but with several nodes no more than a fair part of the rest.
func (d *Daily) ahead(capacity, used int64) int64 {
	size := d.rangeOf(capacity)
	if n := int64(d.limit.reserver.nodes()); n > 1 && size > 1 {
		size = max(1, min(size, (capacity-used)/(4*n)))
	}
	return size
}

// budgetOf returns how many requests of a cap all crashes of a day together may lose (contract, 4.3).
func budgetOf(capacity int64) int64 { return max(1, capacity/100) }
