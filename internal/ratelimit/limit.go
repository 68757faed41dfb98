package ratelimit

// Limit is one limit that applies to a request. There are three kinds: a bucket of this node
// alone, a bucket that nodes share (Bucket.lease), and a daily cap. Only the methods in this file
// tell them apart.
type Limit struct {
	Scope   Scope
	Default bool // the server's default for a gateway without a global limit
	Params  *Params
	Bucket  *Bucket
	Daily   *Daily
	ticket  *Ticket // what the limit store has decided about a shared bucket; usually nil
}

// finding is the result of checking one limit. The greatest finding determines the
// decision.
type finding uint8

const (
	passes      finding = iota
	mustAsk             // the limit store must decide
	mustReserve         // a daily cap has room, but nothing reserved
	refuses
	isUnknown // today's count of a daily cap is not loaded yet, so its status is unknown
	isStale
)

// check reads the limit into v and returns what its state allows.
func (l *Limit) check(now Instant, day int64, v *view) finding {
	switch {
	case l.Daily != nil:
		v.state, v.at = &l.Daily.word, uint64(l.Daily.cap())
		v.word = v.state.Load()
		return l.Daily.check(day, v)
	case l.Bucket.lease != nil:
		return l.Bucket.lease.check(now, l.ticket, v)
	default:
		v.state, v.params, v.at = &l.Bucket.state, l.Params, l.Params.unitsAt(now.Mono)
		v.word = v.state.Load()
		return l.Params.check(v)
	}
}

// peek reads the limit into v without deciding. A limit that was replaced counts as unused.
func (l *Limit) peek(now Instant, day int64, v *view) {
	switch {
	case l.Daily != nil:
		v.at = uint64(l.Daily.cap())
		w := l.Daily.load()
		if w == closedDaily || !w.isOf(day) {
			w = packDaily(day, 0, 0)
		}
		v.next = uint64(w)
	case l.Bucket.lease != nil:
		l.Bucket.lease.peek(now, v)
	default:
		v.params, v.at = l.Params, l.Params.unitsAt(now.Mono)
		if v.next = l.Bucket.state.Load(); v.next == closed {
			v.next = 0
		}
	}
}

// refund undoes the charge in v, because another limit refuses.
func (l *Limit) refund(day int64, v *view) {
	switch {
	case l.Daily != nil:
		l.Daily.refund(day)
	case v.state != nil:
		v.state.CompareAndSwap(v.next, v.word)
	}
}

// charged does what follows a decision that has charged the limit.
func (l *Limit) charged(now Instant, v *view) {
	switch {
	case l.Daily != nil:
		l.Daily.charged(dailyWord(v.next))
	case l.Bucket.lease != nil:
		l.Bucket.lease.charged(now, v)
	}
}

// fillStatus fills the status of the limit in the state word, which is one of v's. v.params is nil
// for a shared bucket whose level is that of the cluster.
func (l *Limit) fillStatus(s *Status, now Instant, day int64, v *view, word uint64) {
	s.Scope, s.Default, s.Refused, s.RetryAfter = l.Scope, l.Default, false, 0
	switch {
	case l.Daily != nil:
		dailyWord(word).fillStatus(s, v.at, now, day)
	case v.params != nil:
		v.params.fillStatus(s, word, v.at, now.Wall)
	default:
		l.Bucket.lease.fillStatus(s, now)
	}
}

// fillRefused fills the status of a limit when one of the request's limits refuses. It returns
// the nanoseconds until this one would admit the request, or -1 if it does not refuse.
func (l *Limit) fillRefused(s *Status, now Instant, day int64, v *view) (wait int64) {
	l.fillStatus(s, now, day, v, v.word)
	switch {
	case l.Daily == nil && v.params != nil:
		return v.params.fillRefused(s, v.word, v.at, now.Wall)
	case l.Daily != nil && s.Remaining == 0:
		l.Daily.refused(now.Wall)
		return (day+1)*dayLength - now.Wall
	default:
		return -1
	}
}
