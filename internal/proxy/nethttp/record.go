package nethttp

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/ratelimit"
)

const (
	// statusGone is recorded for a client that left before an answer began.
	statusGone = 499
)

// connection is what is known of a client's connection.
type connection struct {
	trusted bool
	lane    *accesslog.Shard
	peer    netip.Addr
}

// connectionKey is the key of a context's value.
type connectionKey struct{}

func (s *Server) connect(c net.Conn) *connection {
	known := &connection{trusted: s.cfg.Trusted != nil && s.cfg.Trusted(c)}
	if s.cfg.Outcome != nil {
		known.lane = s.cfg.Outcome()
	}
	if addr, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		known.peer = addr.AddrPort().Addr().Unmap().WithZone("")
	}
	return known
}

// course is how a request has gone so far, for its record. Times are of
// Config.Mono.
type course struct {
	lane     *accesslog.Shard
	caller   netip.Addr
	began    ratelimit.Instant
	id       [16]byte
	sent     int64 // when the request went to the upstream
	head     int64 // when the head of its answer came; 0 before
	status   int   // of the final head; 0 before
	upstream int   // the status of the upstream's answer; 0 before
	decision accesslog.Result
	out      int64        // bytes of the answer's body
	in       atomic.Int64 // bytes of the request's body

	mu    sync.Mutex // of what follows, and held while a record is put
	told  bool       // the record was put
	begun bool       // a Begun was put
	timer *time.Timer
}

// open begins the course of a request that the driver has read itself.
func (x *exchange) open(now ratelimit.Instant) {
	k := &x.course
	k.began = now
	k.id = x.server.cfg.NewRequestID(now.Wall / int64(time.Millisecond))
	x.id = id.Format(id.Request, k.id)
	if c, ok := x.r.Context().Value(connectionKey{}).(*connection); ok && c.lane != nil {
		k.lane, k.caller = c.lane, c.peer
		if c.trusted {
			k.caller = x.server.cfg.Trust.Caller(c.peer, forwardedFor(x.r.Header))
		}
	}
}

// unread opens the course of a request that nobody decides.
func (x *exchange) unread() {
	x.open(ratelimit.Instant{Wall: time.Now().UnixNano(), Mono: x.server.cfg.Mono()})
}

// goOn takes the course of a request from the driver that has read it. Without
// one nothing is told.
func (x *exchange) goOn() {
	k := &x.course
	if w, ok := x.w.(interface {
		Course() (lane *accesslog.Shard, began ratelimit.Instant, id [16]byte, caller netip.Addr)
	}); ok {
		k.lane, k.began, k.id, k.caller = w.Course()
	}
}

// watch sees to it that the request is told of if it lasts.
func (x *exchange) watch() {
	k := &x.course
	k.sent = x.server.cfg.Mono()
	if k.lane == nil || !x.verdict.Authenticated {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(proxy.StartedAfter, x.begun)
}

// begun tells of a request that lasts.
func (x *exchange) begun() {
	k := &x.course
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.told || k.begun || k.lane == nil || !x.verdict.Authenticated {
		return
	}
	k.begun = true
	var r accesslog.Record
	x.record(&r)
	r.Part = accesslog.Started
	k.lane.Emit(&r, x.r.Method, x.verdict.Path)
}

// record fills in what all records of x have in common.
func (x *exchange) record(r *accesslog.Record) {
	k := &x.course
	x.verdict.Record(r)
	r.Start, r.Request, r.Method = k.began.Wall/1000, k.id, admit.MethodOf(x.r.Method)
	if k.caller.IsValid() {
		r.Client = k.caller.As16()
	}
	if t := x.server.cfg.Tracer; t != nil {
		t.Begin(r, x.traceparent())
	}
}

// traceparent returns the value of that field, if there is one.
func (x *exchange) traceparent() []byte {
	if values := x.r.Header["Traceparent"]; len(values) == 1 {
		return []byte(values[0])
	}
	return nil
}

// traceField sets the field traceparent for the upstream.
func (x *exchange) traceField(out http.Header) {
	t := x.server.cfg.Tracer
	if t == nil {
		return
	}
	r, inbound := accesslog.Record{Request: x.course.id}, x.traceparent()
	t.Begin(&r, inbound)
	if value := t.Append(nil, &r, inbound); len(value) > 0 {
		out["Traceparent"] = []string{string(value)}
	} else {
		delete(out, "Traceparent")
	}
}

// put tells how the request ended, once. What ends it calls this before the last
// byte of the answer goes out, so that who has the answer finds the request
// everywhere.
func (x *exchange) put(d accesslog.Result, status int) {
	k := &x.course
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer != nil {
		k.timer.Stop()
	}
	if k.told {
		return
	}
	k.told = true
	if k.lane == nil {
		return
	}
	var r accesslog.Record
	x.record(&r)
	r.Result, r.Status, r.BytesIn, r.BytesOut = d, uint16(status), k.in.Load(), k.out
	r.Duration = x.server.cfg.Mono() - k.began.Mono
	if k.upstream != 0 {
		r.Upstream, r.UpstreamStatus = k.head-k.sent, uint16(k.upstream)
	}
	if k.begun {
		r.Part = accesslog.Ended
	}
	k.lane.Emit(&r, x.r.Method, x.verdict.Path)
}

// end tells of a request that nothing else has told of: its answer was broken
// off, or nobody waits for one.
func (x *exchange) end() {
	switch {
	case x.answered:
		x.put(accesslog.Forwarded, x.course.status)
	case x.server.cutting.Load():
		x.put(accesslog.Failed, http.StatusServiceUnavailable)
	default:
		x.put(accesslog.Abandoned, statusGone)
	}
}
