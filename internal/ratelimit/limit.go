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

// isLocal reports whether the limit is a bucket of this node alone.
func (l *Limit) isLocal() bool { return l.Daily == nil && l.Bucket.lease == nil }

// read reads the state of a bucket of this node alone into v. If some of it may be used at mono, the
// clock must be read again before the bucket is checked.
func (l *Limit) read(mono int64, v *view) {
	v.bucket, v.params, v.word = &l.Bucket.bucketState, l.Params, l.Bucket.state.Load()
	v.at, v.wall = l.Params.unitsAt(mono), 0
}

// reread reads a limit that has changed, and checks it.
func (l *Limit) reread(m *moment, v *view) finding {
	if l.isLocal() {
		l.read(m.Mono, v)
		m.advance()
		v.at, v.wall = l.Params.unitsAt(m.Mono), m.Wall
	}
	return l.check(m, v)
}

// check returns what the state of the limit allows, which it first reads into v unless read has.
func (l *Limit) check(m *moment, v *view) finding {
	switch {
	case l.Daily != nil:
		v.state, v.bucket, v.params, v.at, v.wall = &l.Daily.word, nil, nil, uint64(l.Daily.cap()), 0
		v.word = v.state.Load()
		return l.Daily.check(m.day, v)
	case l.Bucket.lease != nil:
		return l.Bucket.lease.check(m, l.ticket, v)
	default:
		return v.params.check(v)
	}
}

// peek reads the limit into v without deciding. A limit that was replaced counts as unused.
func (l *Limit) peek(m *moment, v *view) {
	switch {
	case l.Daily != nil:
		v.params, v.at, v.wall = nil, uint64(l.Daily.cap()), 0
		w := l.Daily.load()
		if w == closedDaily || !w.isOf(m.day) {
			w = packDaily(m.day, 0, 0)
		}
		v.next = uint64(w)
	case l.Bucket.lease != nil:
		l.Bucket.lease.peek(m, v)
	default:
		m.load(v, &l.Bucket.bucketState, l.Params)
		if v.next = v.word; v.next == closed {
			v.next = 0
		}
	}
}

// refund undoes the charge in v of another limit than a bucket, because yet another one refuses.
func (l *Limit) refund(m *moment, v *view) {
	switch {
	case l.Daily != nil:
		l.Daily.refund(m.day)
	case v.charges() != nil:
		l.Bucket.lease.charged(m.Instant, v, nil)
		l.Bucket.lease.payBack(v, v.answer, m.clock())
	}
}

// charged does what follows a decision that has charged the limit.
func (l *Limit) charged(m *moment, v *view) {
	switch {
	case l.Daily != nil:
		l.Daily.charged(dailyWord(v.next))
	case l.Bucket.lease != nil:
		l.Bucket.lease.charged(m.Instant, v, l.ticket)
	}
}

// fillLocal is fillStatus for a bucket of this node alone.
func (l *Limit) fillLocal(s *Status, m *moment, word uint64) {
	s.Scope, s.Default, s.Refused, s.RetryAfter = l.Scope, l.Default, false, 0
	s.view.params.fillStatus(s, word, s.view.at, m.wallOf(&s.view))
}

// fillStatus fills the status of the limit in the state word, which is one of those in its view. The params
// there are nil for a shared bucket whose level is that of the cluster.
func (l *Limit) fillStatus(s *Status, m *moment, word uint64) {
	v := &s.view
	s.Scope, s.Default, s.Refused, s.RetryAfter = l.Scope, l.Default, false, 0
	switch {
	case l.Daily != nil:
		dailyWord(word).fillStatus(s, v.at, m.wallOf(v), m.day)
	case v.params != nil:
		v.params.fillStatus(s, word, v.at, m.wallOf(v))
	case v.state != nil:
		l.Bucket.lease.fillStatus(s, m, word)
	default:
		l.Bucket.lease.fillStatus(s, m, l.Bucket.lease.tokens.Load())
	}
}

// fillRefused fills the status of a limit when one of the request's limits refuses. It returns
// the nanoseconds until this one would admit the request, or -1 if it does not refuse.
func (l *Limit) fillRefused(s *Status, m *moment) (wait int64) {
	v := &s.view
	if l.Daily == nil && v.params != nil {
		return v.params.fillRefused(s, v.word, v.at, m.wallOf(v))
	}
	l.fillStatus(s, m, v.word)
	switch {
	case l.Daily != nil && s.Remaining == 0:
		l.Daily.refused(m.Wall)
		return max(0, (m.day+1)*dayLength-m.Wall)
	default:
		return -1
	}
}
