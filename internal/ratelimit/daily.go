package ratelimit

import (
	"math"
	"sync/atomic"
)

// A dailyWord is the state of one daily count: how many requests of the day are
// used, and how many more may pass before the store must know of them.
//
//	bits  0–29  used: at most 10⁹
//	bits 30–53  left of the range that is reserved: at most a hundredth of that
//	bits 54–62  the UTC day, modulo 512
//
// A word with nothing left is changed by the ledger alone, which sets every
// word anew when the day changes, so 512 days cannot be mistaken for one.
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

// isOf reports whether w is of the day.
func (w dailyWord) isOf(day int64) bool { return w>>(usedBits+leftBits) == dailyWord(day&511) }

// Daily is one daily cap in force. Its Reserver makes it.
type Daily struct {
	word  atomic.Uint64 // a dailyWord
	limit *dailyLimit
	key   [16]byte // the bucket identity of the key, of a limit with per: key

	queued atomic.Bool // it is in the ledger's queue
	next   *Daily      // in the queue

	// Of the ledger's goroutine alone.
	saved int64     // the count that the store has for the day of word
	seen  dailyWord // unitsAt the last sweep
}

func (d *Daily) load() dailyWord { return dailyWord(d.word.Load()) }

func (d *Daily) swap(from, to dailyWord) bool {
	return d.word.CompareAndSwap(uint64(from), uint64(to))
}

func (d *Daily) capacity() uint64 { return uint64(d.limit.capacity.Load()) }

// charged tells the ledger when little is left of a range, after a charge made w.
func (d *Daily) charged(w dailyWord) {
	capacity := d.limit.capacity.Load()
	if left := w.left(); left*2 <= rangeOf(capacity) && w.used()+left < capacity {
		d.limit.reserver.enqueue(d)
	}
}

// refund undoes a charge of the day. Unlike a bucket, a count can be
// given back whatever happened since; only a day that is over keeps it.
func (d *Daily) refund(day int64) {
	for {
		w := d.load()
		if w == closedDaily || !w.isOf(day) || w.used() == 0 {
			return
		}
		if w.left() < rangeOf(d.limit.capacity.Load()) {
			if d.swap(w, w-oneUsed+oneLeft) {
				return
			}
		} else if d.swap(w, w-oneUsed) {
			d.limit.reserver.enqueue(d) // the store has more now than it should
			return
		}
	}
}

// rangeOf returns how many requests of a cap may be reserved and not used: what a
// crash may lose (contract, 4.3).
func rangeOf(capacity int64) int64 { return max(1, capacity/100) }
