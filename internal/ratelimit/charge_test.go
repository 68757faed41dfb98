package ratelimit

// chargeOf returns a charge of 1 of each limit.
func chargeOf(limits ...Limit) *Charge {
	c := new(Charge)
	for _, l := range limits {
		c.Add(l, 1)
	}
	return c
}

// entriesOf returns the entries of chargeOf.
func entriesOf(limits ...Limit) []entry { return chargeOf(limits...).entries[:len(limits)] }

// decide decides a request that is charged 1 of each limit. It returns the statuses, and the index of the worst one,
// or of the limit that is to blame for another result than Admitted and Refused; it is -1 without limits.
func (l *Limiter) decide(now Instant, limits []Limit, status []Status) (Result, int) {
	c := chargeOf(limits...)
	r := l.Decide(now, c)
	return r, c.copyTo(status)
}

// peek is decide for Peek.
func (l *Limiter) peek(now Instant, limits []Limit, status []Status) int {
	c := chargeOf(limits...)
	l.Peek(now, c)
	return c.copyTo(status)
}

func (c *Charge) copyTo(status []Status) (worst int) {
	for i := range c.Shown() {
		status[i] = *c.Status(i)
	}
	if c.count == 0 {
		return -1
	}
	return c.worst
}

// decide is Limiter.decide at a time that stands still.
func decide(now Instant, limits []Limit, status []Status) (Result, int) {
	return new(Limiter).decide(now, limits, status)
}

// peek is Limiter.peek at a time that stands still.
func peek(now Instant, limits []Limit, status []Status) int {
	return new(Limiter).peek(now, limits, status)
}
