package h1

import (
	"net/netip"
	"strings"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/ratelimit"
)

// statusGone is recorded for a client that left before an answer began.
const statusGone = 499

// course is how a request has gone so far, for its record. Times are of
// Config.Mono.
type course struct {
	began    ratelimit.Instant
	id       [16]byte
	sent     int64 // when the request went to the upstream
	head     int64 // when the head of its answer came; 0 before
	decision accesslog.Result
	body     bool // there is one, and it was begun to be passed on
	told     bool // the record was put, or is somebody else's to put
	begun    bool // a Begun was put
}

// open begins a request. A connection that an upstream keeps is taken at once,
// so the request is taken to be sent when it was decided, unless that is put right.
func (a *course) open(now ratelimit.Instant) { a.began, a.sent = now, now.Mono }

// failed notes why the gateway answers itself.
func (a *course) failed(v *admit.Verdict, err error) { a.decision = v.ResultOf(err) }

// record fills in what all records of x have in common.
func (c *conn) record(r *accesslog.Record, x *exchange) {
	x.verdict.Record(r)
	r.Start = x.course.began.Wall / 1000
	r.Request = x.course.id
	r.Method = admit.MethodOf(x.ask.Method)
	r.Client = c.caller(x).As16()
	if t := c.engine.cfg.Tracer; t != nil {
		t.Begin(r, x.traceparent())
	}
}

// traceparent returns the value of that field, if there is one.
func (x *exchange) traceparent() (value []byte) {
	if !x.known {
		return nil
	}
	fields := x.req.Fields()
	for i := range fields {
		if fields[i].ID == http1.Traceparent {
			if value != nil {
				return nil
			}
			value = fields[i].Value.Of(x.head)
		}
	}
	return value
}

// appendTrace appends the field traceparent for the upstream.
func (x *exchange) appendTrace(dst []byte) []byte {
	r, inbound := &x.record, x.traceparent()
	r.Request = x.course.id
	x.c.engine.cfg.Tracer.Begin(r, inbound)
	before := len(dst)
	dst = append(dst, "Traceparent: "...)
	start := len(dst)
	if dst = x.c.engine.cfg.Tracer.Append(dst, r, inbound); len(dst) == start {
		return dst[:before]
	}
	return append(dst, "\r\n"...)
}

// caller returns who sent the request.
func (c *conn) caller(x *exchange) netip.Addr {
	client := c.info.Client.Addr()
	if !c.info.Trusted || !x.known {
		return client
	}
	var room [4]string
	values := room[:0]
	fields := x.req.Fields()
	for i := range fields {
		if fields[i].ID == http1.XForwardedFor {
			values = append(values, text(fields[i].Value.Of(x.head)))
		}
	}
	return c.engine.cfg.Trust.Caller(client, values)
}

// begun tells of a request that lasts. The sweeper calls it while it holds the
// exchange, and whoever begins a tunnel.
func (c *conn) begun(x *exchange) {
	if x.course.begun || !x.verdict.Authenticated {
		return
	}
	x.course.begun = true
	var r accesslog.Record
	c.record(&r, x)
	r.Part = accesslog.Started
	c.lane.Emit(&r, x.ask.Method, x.verdict.Path)
}

// end fills in how a request ended.
func (c *conn) end(r *accesslog.Record, x *exchange, d accesslog.Result, status int, out int64) {
	c.record(r, x)
	a := &x.course
	r.Result, r.Status, r.BytesOut = d, uint16(status), out
	if a.body {
		r.BytesIn = x.body.moved
	}
	now := a.head
	if now == 0 || x.streaming || x.upload != nil {
		now = c.engine.cfg.Mono()
	}
	r.Duration = now - a.began.Mono
	if a.head != 0 {
		r.Upstream, r.UpstreamStatus = a.head-a.sent, uint16(x.relay.resp.Status)
	}
	if a.begun {
		r.Part = accesslog.Ended
	}
}

// put ends x for the record. What ends a request calls it before the last byte of
// the answer goes out, so that who has the answer finds the request everywhere.
func (c *conn) put(x *exchange, d accesslog.Result, status int, out int64) {
	if x.course.told {
		return
	}
	x.course.told = true
	if c.lane == nil {
		return
	}
	c.end(&x.record, x, d, status, out)
	c.lane.Emit(&x.record, x.ask.Method, x.verdict.Path)
}

// forwarded tells of a request whose upstream has answered.
func (c *conn) forwarded(x *exchange) {
	c.put(x, accesslog.Forwarded, x.relay.resp.Status, x.relay.body.moved)
}

// answered tells of a request that the gateway answers itself.
func (c *conn) answered(x *exchange, status, out int) {
	c.put(x, x.course.decision, status, int64(out))
}

// gone tells of a request that nobody waits for any more, or that the end of a
// drain cut off.
func (c *conn) gone(x *exchange, why cut) step {
	if why == cutDrain {
		c.put(x, accesslog.Failed, 503, 0)
	} else {
		c.put(x, accesslog.Abandoned, statusGone, 0)
	}
	return stepClose
}

// tunnelRecord is the record of an upgrade, which outlives its exchange.
type tunnelRecord struct {
	accesslog.Record
	began        int64
	method, path string
}

// upgraded takes the record of x, whose connections become a tunnel, and tells of
// it at once.
func (c *conn) upgraded(x *exchange) *tunnelRecord {
	x.course.told = true
	if c.lane == nil {
		return nil
	}
	c.begun(x)
	t := &tunnelRecord{began: x.course.began.Mono, method: strings.Clone(x.ask.Method), path: strings.Clone(x.verdict.Path)}
	c.end(&t.Record, x, accesslog.Forwarded, x.relay.resp.Status, 0)
	return t
}

// closed tells of a tunnel that has ended.
func (c *conn) closed(t *tunnelRecord, in, out int64) {
	if t == nil {
		return
	}
	t.BytesIn, t.BytesOut, t.Duration = in, out, c.engine.cfg.Mono()-t.began
	c.lane.Emit(&t.Record, t.method, t.path)
}
