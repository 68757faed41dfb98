package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/keygate/keygate/internal/id"
)

// claimsAtOnce is how many claims one call of the store makes. Each is up to two rows, and all changes of the
// configuration wait for the store meanwhile. A cap with per: key may have a million.
const claimsAtOnce = 500

// batch is a set of claims that are written to the store together. It belongs to the Reserver's goroutine.
type batch struct {
	day     int64
	claims  []DailyClaim
	dailies []*Daily // in the order of claims
	numbers []uint32 // Daily.claims of each
}

// add adds a claim of d. used requests have passed at all nodes, d.others of them at other nodes.
// ahead more are to be reserved; requests wait for needed of them.
func (b *batch) add(d *Daily, day, used, ahead, needed int64) {
	c := DailyClaim{LimitID: d.limit.id, Cap: d.cap(), Used: used - d.others, Lost: d.wasted, Ahead: ahead, Needed: needed}
	if d.limit.keys != nil {
		c.KeyID = id.Format(id.Key, d.key)
	}
	d.saved, d.savedLost = c.Used+ahead, ahead
	b.day = day
	b.claims = append(b.claims, c)
	b.dailies = append(b.dailies, d)
	d.claims++
	b.numbers = append(b.numbers, d.claims)
}

// extend adds what must be reserved in the store before d may admit more: a whole range, if requests have used
// half of the last range. If ranges are empty, it is one request while any call waits, so that a crash loses no
// more. Otherwise nothing is reserved. If d has more than that, because the cap has shrunk or no call waits any
// longer, extend gives the excess up.
func (b *batch) extend(d *Daily, today int64) {
	needed := min(d.waiting.Load(), 1)
	wanted := d.wanted.Swap(false) || needed > 0
	for {
		w := d.load()
		if w == closedDaily || d.limit.day != today || !w.isOf(today) {
			return
		}
		used, left := w.used(), w.left()
		capacity := d.cap()
		size := d.ahead(capacity, used)
		ahead := max(0, min(cmp.Or(size, needed), capacity-used))
		switch {
		case left > ahead:
			if !d.swap(w, packDaily(today, used, ahead)) {
				continue
			}
		case !wanted || left*2 > size:
			ahead = left
		}
		// Each request that has passed since the last save lowers what a crash may lose. After a request was
		// taken back, the store may be up to date although d is not.
		if refresh := d.refresh.Swap(false); refresh || ahead > left || used-d.others+ahead != d.saved || ahead > d.savedLost {
			b.add(d, today, used, ahead, needed)
		}
		return
	}
}

// release adds the count that d has really used, and gives up what is left of d's range.
// The word of d becomes closedDaily if to is closedDaily, and otherwise to with the used
// count.
func (b *batch) release(d *Daily, day int64, to dailyWord) {
	for {
		w := d.load()
		if w == closedDaily {
			return
		}
		known := d.limit.day == day && day >= 0 && w.isOf(day)
		next := to
		if next != closedDaily {
			if !known {
				return
			}
			next |= dailyWord(w.used())
		}
		if !d.swap(w, next) {
			continue
		}
		if known && (w.used()-d.others != d.saved || d.savedLost != 0) {
			b.add(d, day, w.used(), 0, 0)
		}
		return
	}
}

// save writes the batch, in pieces of claimsAtOnce, and calls saved after each, unless it is nil. Between two pieces it
// serves requests that wait for other caps. If a piece fails, the store's counts of it are unknown, though no lower than
// before. This piece and the pieces behind it are written again next time.
func (b *batch) save(ctx context.Context, r *Reserver, saved func(claims []DailyClaim, of []*Daily)) error {
	for from := 0; from < len(b.claims); {
		if from > 0 {
			r.serveWaiting(ctx)
		}
		to := b.gather(from, r.atOnce)
		if to == from {
			return nil
		}
		if err := r.claim(ctx, b.day, b.claims[from:to]); err != nil {
			b.forget(from)
			return fmt.Errorf("save daily counts: %w", err)
		}
		if saved != nil {
			saved(b.claims[from:to], b.dailies[from:to])
		}
		from = to
	}
	return nil
}

// forget notes that the store's counts from the given index on are unknown.
func (b *batch) forget(from int) {
	for _, d := range b.dailies[from:] {
		d.saved, d.savedLost = -1, -1
	}
}

// gather removes claims that have been replaced meanwhile from the next piece, and returns its end.
func (b *batch) gather(from, atOnce int) (to int) {
	to = from
	at := from
	for ; at < len(b.claims) && to-from < atOnce; at++ {
		if b.dailies[at].claims == b.numbers[at] {
			b.claims[to], b.dailies[to], b.numbers[to] = b.claims[at], b.dailies[at], b.numbers[at]
			to++
		}
	}
	if gone := at - to; gone > 0 {
		b.claims, b.dailies, b.numbers = slices.Delete(b.claims, to, at), slices.Delete(b.dailies, to, at), slices.Delete(b.numbers, to, at)
	}
	return to
}

// open lets requests use what saved claims have reserved.
func open(claims []DailyClaim, of []*Daily, today int64) {
	for i, d := range of {
		c := &claims[i]
		d.saved, d.savedLost = c.Used+c.Granted, c.Granted
		d.lost.Store(c.OthersLost + c.Lost)
		for {
			w := d.load()
			if w == closedDaily || !w.isOf(today) {
				break
			}
			own := w.used() - d.others
			left := c.Used + c.Granted - own
			ahead := min(left, c.Granted)
			if !d.swap(w, packDaily(today, min(c.OthersUsed+own, MaxCount), ahead)) {
				continue
			}
			d.others = min(c.OthersUsed+own, MaxCount) - own
			if ahead < left { // a charge was refunded meanwhile: the store's count is too high
				d.limit.reserver.enqueue(d)
			}
			break
		}
	}
}

// dailyCounts is the store's counts of one limit for a day.
type dailyCounts struct {
	shared knownCount
	keys   map[[16]byte]knownCount
}

// groupCounts groups rows by limit.
func groupCounts(rows []DailyCount, limits map[limitKey]*dailyLimit) map[limitKey]dailyCounts {
	known := make(map[limitKey]dailyCounts, len(limits))
	for k := range limits {
		if k.perKey {
			known[k] = dailyCounts{keys: make(map[[16]byte]knownCount)}
		}
	}
	for _, row := range rows {
		k := limitKey{row.LimitID, row.KeyID != ""}
		if limits[k] == nil {
			continue
		}
		// The requests that the last process had reserved ahead and did not give back are lost now.
		count := knownCount{min(row.Used, MaxCount), row.Lost, row.Own, row.OwnLost}
		if !k.perKey {
			known[k] = dailyCounts{shared: count}
		} else if key, ok := id.Parse(id.Key, row.KeyID); ok {
			known[k].keys[key] = count
		}
	}
	return known
}
