package ratelimit

// debt is what this node has admitted of a shared bucket without the limit store, and the store has
// not charged yet. What is older than the time in which the bucket refills need not be charged: it
// would be regained. So the present part of that time and the parts before it are counted.
type debt struct {
	parts [debtParts + 1]int64 // a ring
	at    int                  // the present part
	since int64                // when it began, in nanoseconds of Instant.Mono

	// reported is what a trip has reported whose answer is not known. It is repeated with the same
	// number until it is, so that the store charges it once.
	reported, number int64
}

// debtParts is into how many parts the time in which a bucket refills is divided.
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

// report returns what the next trip must report, and the number of the report. A new one gets the
// number that next returns, which must grow.
func (d *debt) report(mono, window int64, next func() int64) (amount, number int64) {
	d.roll(mono, window)
	if d.reported == 0 && d.sum() > 0 {
		d.reported, d.parts, d.number = d.sum(), [debtParts + 1]int64{}, next()
	}
	if d.reported == 0 {
		return 0, 0
	}
	return d.reported, d.number
}

// settle takes the answer to the report with the given number: the store has charged some of it. The
// rest did not fit the bucket and stays a debt.
func (d *debt) settle(number, charged, mono, window int64) {
	if number == d.number && d.reported > 0 {
		rest := d.reported - charged
		d.reported = 0
		if rest > 0 {
			d.add(rest, mono, window)
		}
	}
}

// isZero reports whether there is nothing to report.
func (d *debt) isZero() bool { return d.reported == 0 && d.sum() == 0 }
