package ratelimit

import "slices"

// debt is the requests that this node has admitted from a shared bucket without the limit store, and that the store has
// not charged yet. Its gifts are the reverse: charges to give back. Requests that are older than the time in which the
// bucket refills need not be charged, because the bucket would have regained them. So that time is divided into parts,
// and requests are counted by part.
type debt struct {
	parts [debtParts + 1]int64 // a ring
	at    int                  // the present part
	since int64                // when it began, in nanoseconds of Instant.Mono

	// reported is what a trip has reported, while its answer is unknown. The report is repeated
	// with the same number until the answer is known, so that the store charges it once.
	reported, number int64

	gifts []gift // that are not reported yet; at most MaxGifts
	sent  []gift // that were reported with number
}

// answer is what the store has said when it charged a request, and when.
type answer struct {
	level, part int64  // Take.Level and LevelPart
	time        int64  // Take.Time
	generation  int64  // of the store
	lapses      uint64 // in a Lease's origin, the millisecond at which its tokens lapse; else 0
}

// until returns a copy of a with the given lapses. Nil stays nil.
func (a *answer) until(lapses uint64) *answer {
	if a == nil {
		return nil
	}
	b := *a
	b.lapses = lapses
	return &b
}

// isAfter reports whether a is of a later charge than b.
func (a *answer) isAfter(b *answer) bool {
	return a.time > b.time || a.time == b.time && a.level > b.level
}

// isBefore reports whether a may be earlier than b. Nil is an unknown answer.
func (a *answer) isBefore(b *answer) bool {
	return b != nil && (a == nil || a.generation != b.generation || a.time < b.time)
}

// gift is a number of requests that the store has charged, and that are given back to it.
type gift struct {
	amount int64
	answer
}

// give adds a request of the given amount that the store has charged with the answer a. If there are too many gifts,
// some count as older than they are, and may then be worth less.
func (d *debt) give(amount int64, a *answer) {
	a = a.until(0)
	for i := range d.gifts {
		if d.gifts[i].answer == *a {
			d.gifts[i].amount += amount
			return
		}
	}
	if len(d.gifts) < MaxGifts {
		i := len(d.gifts)
		for i > 0 && d.gifts[i-1].isAfter(a) {
			i--
		}
		d.gifts = slices.Insert(d.gifts, i, gift{amount, *a})
		return
	}
	last := &d.gifts[MaxGifts-1]
	if last.generation != a.generation {
		return
	}
	last.amount += amount
	if last.isAfter(a) {
		last.answer = *a
	}
}

// owed identifies a request of a debt: when it was added, and the number of the last report before.
type owed struct{ mono, number int64 }

// forgive takes the amount of the request o off the debt, from its oldest part, which would be forgotten first. It
// does nothing if o has been reported since, or is forgotten, because it would then reduce the debt of other requests.
func (d *debt) forgive(o owed, amount, mono, window int64) {
	if o.number != d.number || mono-o.mono > min(window, maxWindow)*second {
		return
	}
	for i := 1; i <= len(d.parts) && amount > 0; i++ {
		part := &d.parts[(d.at+i)%len(d.parts)]
		n := min(amount, *part)
		*part, amount = *part-n, amount-n
	}
}

// debtParts is the number of parts into which the time in which a bucket refills is divided.
const debtParts = 8

// maxWindow bounds the time for which a debt is kept, in seconds.
const maxWindow = 1 << 30

// add counts requests. window is the time in which the bucket refills, in seconds.
func (d *debt) add(n, mono, window int64) {
	d.roll(mono, window)
	d.parts[d.at] += n
}

// roll begins the next part if the present one is over.
func (d *debt) roll(mono, window int64) {
	part := min(window, maxWindow) * second / debtParts
	if d.sum() == 0 || mono-d.since > part*(debtParts+1) {
		d.parts, d.since = [debtParts + 1]int64{}, mono
	}
	for mono-d.since > part {
		d.at, d.since = (d.at+1)%len(d.parts), d.since+part
		d.parts[d.at] = 0
	}
}

func (d *debt) sum() (n int64) {
	for _, part := range d.parts {
		n += part
	}
	return n
}

// report sets in t what the next trip, to the given generation of the store, must report, and the number of
// the report. A new report gets the number that next returns, which must grow.
func (d *debt) report(t *Take, mono, window, generation int64, next func() int64) {
	d.roll(mono, window)
	if d.reported == 0 && len(d.sent) == 0 && (d.sum() > 0 || len(d.gifts) > 0) {
		d.reported, d.parts, d.number = d.sum(), [debtParts + 1]int64{}, next()
		d.sent, d.gifts = d.gifts, nil
	}
	if d.reported == 0 && len(d.sent) == 0 {
		return
	}
	t.Debt, t.DebtNumber = d.reported, d.number
	for i := range d.sent {
		if g := &d.sent[i]; g.generation == generation { // else the store may have forgotten the charge
			t.Gifts = append(t.Gifts, Gift{g.amount, g.level, g.part, g.time})
		}
	}
}

// settle takes the answer to the report with the given number: the store has charged some of it. The
// rest did not fit the bucket and stays a debt.
func (d *debt) settle(number, charged, mono, window int64) {
	if number != d.number {
		return
	}
	rest := d.reported - charged
	d.reported, d.sent = 0, nil
	if rest > 0 {
		d.add(rest, mono, window)
	}
}

// isZero reports whether there is nothing to report.
func (d *debt) isZero() bool {
	return d.reported == 0 && d.sum() == 0 && len(d.gifts) == 0 && len(d.sent) == 0
}
