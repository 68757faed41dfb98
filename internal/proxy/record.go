package proxy

import (
	"cmp"
	"errors"
	"net/netip"
	"strings"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/ratelimit"
)

// statusClientClosed is recorded for a client that hung up before a response began.
const statusClientClosed = 499

// ErrCut is the cause of a context that ends because a shutdown cuts off what runs, not
// because the client hung up.
var ErrCut = errors.New("cut off by a shutdown")

// End describes how an exchange ended.
type End struct {
	Result accesslog.Result
	Status int
	// BytesIn and BytesOut count the bytes of the bodies, without framing.
	BytesIn, BytesOut int64
	// At is the time of the end by Config.Mono. 0 means now.
	At int64
}

// Emit hands the access record of the exchange to its shard. Only the first call has an
// effect. An engine calls it before the last byte of the response goes out, so that a client
// that has the whole response finds the request in every report.
func (x *Exchange) Emit(e End) {
	if x.ended {
		return
	}
	x.end(e.BytesIn, e.BytesOut)
	if x.Client.Shard != nil {
		x.fillEnd(&x.record, e)
		t := accesslog.Texts{Detail: x.detail, Cost: x.costs.record()}
		x.fillTarget(&t)
		x.emit(&x.record, t)
	}
	x.costs.release()
	x.costs = nil
}

// end is the one end of every exchange: it settles the charge, unless that was given back before.
func (x *Exchange) end(bytesIn, bytesOut int64) {
	x.ended = true
	defer x.settleCharge(bytesIn, bytesOut) // even if the costs panic
	x.settleCosts(bytesIn, bytesOut)
}

func (x *Exchange) settleCharge(bytesIn, bytesOut int64) {
	if !x.metered {
		x.cfg.Admit.Settle(&x.Verdict.Charge, &x.meter.total)
		return
	}
	x.meter.settle(x.cfg, &x.Verdict.Charge, bytesIn, bytesOut)
}

// settleCosts says what the exchange costs, when so many bytes have passed. The first call counts. meter.mu is not held.
func (x *Exchange) settleCosts(bytesIn, bytesOut int64) {
	if x.attempts == 0 && !x.responds {
		x.costs.drop()
		return
	}
	x.meter.mu.Lock()
	defer x.meter.mu.Unlock()
	x.costs.settle(&x.meter.total, x.Method == "HEAD", bytesIn, bytesOut)
}

// emit emits a record with the texts of the exchange.
func (x *Exchange) emit(r *accesslog.Record, t accesslog.Texts) {
	t.Method, t.Path, t.Owner, t.Plan = x.Method, x.Verdict.Path, x.Verdict.Owner(), x.Verdict.Plan()
	t.Token = x.Verdict.Token()
	t.Detail = cmp.Or(t.Detail, x.Verdict.Detail())
	x.Client.Shard.EmitTexts(r, &t)
}

// EmitNoResponse emits the record of a request that got no response: the client hung up,
// or a shutdown cut the request off.
func (x *Exchange) EmitNoResponse(cut bool, bytesIn int64) {
	if cut {
		x.Emit(End{Result: accesslog.Failed, Status: http1.StatusServiceUnavailable, BytesIn: bytesIn})
	} else {
		x.Emit(End{Result: accesslog.Abandoned, Status: statusClientClosed, BytesIn: bytesIn})
	}
}

// Ended reports whether the record was emitted, or the exchange was handed over.
func (x *Exchange) Ended() bool { return x.ended }

// EmitStarted emits the record of the start of a request that runs for StartedAfter, or
// becomes a tunnel, so that its authentication is in the audit log within a second.
func (x *Exchange) EmitStarted() {
	if x.started || x.ended || x.Client.Shard == nil || !x.Verdict.Authenticated {
		return
	}
	x.started = true
	var r accesslog.Record
	x.fill(&r)
	r.Part = accesslog.Started
	x.emit(&r, accesslog.Texts{})
}

// Detach emits the record of the start of a tunnel and returns the record of its end,
// which outlives the exchange.
func (x *Exchange) Detach(status int) *Detached {
	var charge *ratelimit.Charge
	metered := x.Verdict.Charge.IsMetered()
	if x.Verdict.Charge.IsHeld() {
		charge = x.Verdict.Charge.Detach()
	}
	x.EmitStarted()
	costs := x.costs
	x.costs = nil
	x.end(0, 0)
	d := &Detached{cfg: x.cfg, charge: charge, metered: metered, costs: costs, shard: x.Client.Shard, start: x.start.Mono}
	d.texts = accesslog.Texts{Method: strings.Clone(x.Method), Path: strings.Clone(x.Verdict.Path), Owner: x.Verdict.Owner(), Plan: x.Verdict.Plan(), Token: x.Verdict.Token()}
	x.fillTarget(&d.texts)
	x.fillEnd(&d.record, End{Result: accesslog.Forwarded, Status: status})
	return d
}

// Detached is the record of a tunnel.
type Detached struct {
	record accesslog.Record
	texts  accesslog.Texts // without the costs
	cfg    *Config
	shard  *accesslog.Shard
	start  int64

	charge  *ratelimit.Charge // nil if nothing of it depends on the tunnel
	metered bool              // some limit counts the bytes of the tunnel, or what it costs
	meter   meter
	costs   *costs
}

// Emit emits the record of a tunnel that carried in bytes from the client and out bytes to
// it.
func (d *Detached) Emit(in, out int64) {
	d.settle(in, out)
	if d.shard != nil {
		d.record.BytesIn, d.record.BytesOut, d.record.Duration = in, out, d.cfg.Mono()-d.start
		d.texts.Cost = d.costs.record()
		d.shard.EmitTexts(&d.record, &d.texts)
	}
	d.costs.release()
}

// settle settles the charge of a tunnel, even if the costs panic.
func (d *Detached) settle(in, out int64) {
	if d.charge != nil {
		defer d.meter.settle(d.cfg, d.charge, in, out)
	}
	if d.costs != nil {
		d.meter.mu.Lock()
		defer d.meter.mu.Unlock()
		d.costs.whole = d.record.Reason == accesslog.NoReason
		d.costs.settle(&d.meter.total, false, in, out)
	}
}

// fill sets the fields that all records of the exchange have in common.
func (x *Exchange) fill(r *accesslog.Record) {
	x.Verdict.Record(r)
	r.Start, r.Request, r.Method = x.start.Wall/1000, x.id, accesslog.MethodOf(x.Method)
	r.Major, r.Minor = x.Major, x.Minor
	if !x.addr.IsValid() {
		x.addr = x.clientAddr(x.cfg.Trust)
	}
	if x.addr.IsValid() {
		r.Client = x.addr.As16()
	}
	if t := x.cfg.Tracer; t != nil {
		t.Begin(r, x.Traceparent)
	}
}

// fillEnd sets all fields of the record of the end.
func (x *Exchange) fillEnd(r *accesslog.Record, e End) {
	x.fill(r)
	r.Result, r.Status, r.BytesIn, r.BytesOut = e.Result, uint16(e.Status), e.BytesIn, e.BytesOut
	r.Reason, r.Attempts = cmp.Or(x.reason, x.Verdict.KeyReason), x.attempts
	if e.At == 0 {
		e.At = x.cfg.Mono()
	}
	r.Split = x.Verdict.SideReason != ""
	if c := x.Verdict.Canary; c != nil && c.Counts {
		r.Canary, r.CanaryStep, r.CanaryNext, r.CanaryCaller = c.UUID, uint32(c.Step), x.Verdict.CanaryNext, x.Verdict.CanaryCaller
	}
	r.Duration = e.At - x.start.Mono
	if x.head != 0 {
		r.Upstream, r.UpstreamStatus = x.head-x.sent, uint16(x.upstreamStatus)
	}
	if x.started && x.Verdict.Auth == "" { // otherwise the refusal is a separate authentication event
		r.Part = accesslog.Ended
	}
}

// clientAddr returns the client's address, from X-Forwarded-For if a trusted proxy sent it.
func (x *Exchange) clientAddr(trust *clientip.Trust) netip.Addr {
	if !x.Client.Trusted {
		return x.Client.Peer
	}
	return trust.ClientBehind(x.Client.Peer, x.ForwardedFor)
}

// AppendTraceparent appends the value of traceparent for the upstream, or nothing.
func (x *Exchange) AppendTraceparent(dst []byte) []byte {
	x.record.Request = x.id
	x.cfg.Tracer.Begin(&x.record, x.Traceparent)
	return x.cfg.Tracer.Append(dst, &x.record, x.Traceparent)
}
