package control_test

import (
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/requestlog"
	requestwriter "github.com/keygate/keygate/internal/requestlog/writer"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/traffic/meter"
)

// levels are told of every gateway.
type levels []ratelimit.Level

func (l levels) Levels(_ string, f func(ratelimit.Level)) {
	for _, one := range l {
		f(one)
	}
}

// plane is what a data plane tells.
type plane struct {
	*accesslog.Shard
	account, gateway [16]byte
	clock            *clock
}

// withPlane makes the service anew, over what a data plane tells of requests of the
// gateway.
func (h *harness) withPlane(accountID, gatewayID string, l levels) *plane {
	h.tb.Helper()
	counts := must[*meter.Meter](h)(meter.New(meter.Config{Store: h.db, Now: h.clock.now}))
	requests := must[*requestwriter.Writer](h)(requestwriter.New(requestwriter.Config{Store: h.db, Now: h.clock.now}))
	outcomes := must[*accesslog.Collector](h)(accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{counts, requests}}))
	h.Service = must[*control.Service](h)(control.New(control.Config{
		Store: h.db, Publisher: h.pub, Sealer: h.box, Now: h.clock.now, Random: rand.Reader, GatewayDomain: domain,
		Sources: control.Sources{AccessLog: outcomes, Traffic: counts, Requests: requests, Levels: l},
	}))
	p := &plane{Shard: outcomes.Shard(), clock: h.clock}
	p.account, _ = id.Parse(id.Account, accountID)
	p.gateway, _ = id.Parse(id.Gateway, gatewayID)
	return p
}

// end tells of a request that ends now.
func (p *plane) end(route, key string, d accesslog.Result, status uint16) (requestID string) {
	r := accesslog.Record{Account: p.account, Gateway: p.gateway, Request: id.NewFast(), Start: p.clock.now().UnixMicro(), Result: d, Status: status, Method: accesslog.GET}
	r.Route, _ = id.Parse(id.Route, route)
	r.Key, _ = id.Parse(id.Key, key)
	p.Emit(&r, "", "/orders")
	return id.Format(id.Request, r.Request)
}

// TestReportsAreComplete holds that a report and the log have every request that ended
// before the call, and nothing of another account.
func TestReportsAreComplete(t *testing.T) {
	h := newHarness(t)
	c, other := h.caller("a", "admin"), h.caller("b", "admin")
	g := h.gateway(c)
	p := h.withPlane(c.Account.ID, g.ID, nil)
	for want := range int64(3) {
		refused := p.end("", "", accesslog.KeyInvalid, 401)
		rows := must[[]traffic.Row](h)(h.Traffic(ctx(), c, traffic.Query{}))
		if len(rows) != 61 || rows[60].Requests != want+1 || rows[60].Unauthorized != want+1 || rows[0].Requests != 0 {
			t.Fatalf("%d rows, the last is %+v", len(rows), rows[len(rows)-1])
		}
		list := must[[]requestlog.Request](h)(h.Requests(ctx(), c, requestlog.Filter{}, control.Page{Limit: 25}))
		if int64(len(list)) != want+1 || !slices.ContainsFunc(list, func(r requestlog.Request) bool { return r.ID == refused }) {
			t.Fatalf("%d requests", len(list))
		}
		one := must[*requestlog.Request](h)(h.Request(ctx(), c, refused))
		if one.Decision.Check != "key" || one.Path != "/orders" {
			t.Fatalf("%+v", one)
		}
		_, err := h.Request(ctx(), other, refused)
		h.wantCode(err, fault.NotFound, "")
	}
	rows := must[[]traffic.Row](h)(h.Traffic(ctx(), other, traffic.Query{GatewayID: g.ID}))
	if len(rows) != 61 || rows[60].Requests != 0 {
		t.Errorf("another account sees %+v", rows[len(rows)-1])
	}
	if list := must[[]requestlog.Request](h)(h.Requests(ctx(), other, requestlog.Filter{}, control.Page{Limit: 25})); len(list) != 0 {
		t.Errorf("another account sees %+v", list)
	}
}

// TestReportsThatCannotBe holds what is refused: an interval that is not kept for so long, a
// time that makes no sense, and too many rows.
func TestReportsThatCannotBe(t *testing.T) {
	h := newHarness(t)
	c := h.caller("a", "admin")
	h.withPlane(c.Account.ID, "", nil)
	now := h.clock.now()
	for _, test := range []struct {
		q     traffic.Query
		field string
	}{
		{traffic.Query{Interval: traffic.Minute, Since: now.Add(-49 * time.Hour)}, "interval"},
		{traffic.Query{Interval: traffic.Hour, Since: now.Add(-36 * 24 * time.Hour)}, "interval"},
		{traffic.Query{Interval: traffic.Day, Since: now.Add(-402 * 24 * time.Hour)}, "since"},
		{traffic.Query{Interval: traffic.Interval(time.Second)}, "interval"},
		{traffic.Query{Since: now, Until: now}, "since"},
		{traffic.Query{Since: now.Add(-time.Hour), Until: now.Add(100_000 * time.Minute)}, "since"},
	} {
		_, err := h.Traffic(ctx(), c, test.q)
		h.wantCode(err, fault.ValidationFailed, test.field)
	}
	for _, q := range []traffic.Query{
		{Interval: traffic.Minute, Since: now.Add(-48 * time.Hour)}, {Interval: traffic.Hour, Since: now.Add(-35 * 24 * time.Hour)},
		{Interval: traffic.Day, Since: now.Add(-400 * 24 * time.Hour)}, {GatewayID: "nonsense", Group: traffic.ByRoute},
	} {
		must[[]traffic.Row](h)(h.Traffic(ctx(), c, q))
	}
}

// TestLimitsInPages holds that the pages of the limits have each of them once, in one order, and
// go on after a limit that is gone meanwhile.
func TestLimitsInPages(t *testing.T) {
	h := newHarness(t)
	c, other := h.caller("a", "admin"), h.caller("b", "admin")
	g := h.gateway(c)
	all := levels{{Status: ratelimit.Status{Scope: ratelimit.GlobalScope, Limit: 9, Remaining: 8}}}
	for range 30 {
		route := id.NewFast()
		all = append(all, ratelimit.Level{Status: ratelimit.Status{Scope: ratelimit.RouteScope}, Route: route},
			ratelimit.Level{Status: ratelimit.Status{Scope: ratelimit.DailyScope}, Route: route, Key: id.NewFast()},
			ratelimit.Level{Status: ratelimit.Status{Scope: ratelimit.KeyScope}, Key: id.NewFast()})
	}
	h.withPlane(c.Account.ID, g.ID, all)
	var want []control.LimitLevel
	for _, limit := range []int{100, 1, 7} {
		var got []control.LimitLevel
		for after := ""; ; {
			page := must[[]control.LimitLevel](h)(h.Limits(ctx(), c, g.ID, control.Page{Limit: limit, After: after}))
			if len(page) > limit {
				t.Fatalf("a page of %d", len(page))
			}
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			after = page[len(page)-1].Cursor()
		}
		if want == nil {
			want = got
		}
		if len(got) != len(all) || !slices.Equal(got, want) {
			t.Errorf("pages of %d have %d limits, want %d", limit, len(got), len(all))
		}
	}
	if want[0].Scope != ratelimit.GlobalScope || want[0].Remaining != 8 || want[0].RouteID != "" {
		t.Errorf("the first is %+v", want[0])
	}
	_, err := h.Limits(ctx(), other, g.ID, control.Page{Limit: 25})
	h.wantCode(err, fault.NotFound, "")
}

// TestSimulateLimit holds that a limit is replayed on the requests that came to the limits until the call,
// keeps its answer under an Idempotency-Key, and refuses what is not there.
func TestSimulateLimit(t *testing.T) {
	h := newHarness(t)
	c, other := h.caller("a", "admin"), h.caller("b", "admin")
	g := h.gateway(c)
	r := h.route(c, g.ID, "/orders", "GET")
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read"}))
	next := must[*control.NewKey](h)(h.RotateKey(ctx(), c, k.ID, 1, "", nil))
	p := h.withPlane(c.Account.ID, g.ID, nil)
	for range 3 {
		p.end(r.ID, k.ID, accesslog.Forwarded, 200)
		p.end(r.ID, next.ID, accesslog.Limited, 429)
	}
	p.end(r.ID, k.ID, accesslog.WrongScope, 403)
	limit := ratelimit.Config{Sustained: rate("2/day")}
	for name, in := range map[string]control.SimulationInput{
		"route": {RouteID: r.ID, Limit: limit}, "key": {KeyID: next.ID, Limit: limit}, "gateway": {Limit: limit},
		"per key": {RouteID: r.ID, Limit: ratelimit.Config{Sustained: rate("2/day"), Per: ratelimit.PerKey}},
	} {
		s := must[*control.Simulation](h)(h.SimulateLimit(ctx(), c, g.ID, in))
		if s.Requests != 6 || s.Refused != 4 || len(s.Keys) != 2 || !s.Keys[0].FirstAt.Equal(h.clock.now().Truncate(time.Second)) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	account := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Level: "account"}))
	foreign := h.gateway(other)
	for _, test := range []struct {
		gateway string
		in      control.SimulationInput
		code    fault.Code
		field   string
	}{
		{foreign.ID, control.SimulationInput{Limit: limit}, fault.NotFound, ""},
		{g.ID, control.SimulationInput{RouteID: "rt_x", Limit: limit}, fault.ValidationFailed, "route_id"},
		{g.ID, control.SimulationInput{KeyID: "key_x", Limit: limit}, fault.ValidationFailed, "key_id"},
		{g.ID, control.SimulationInput{KeyID: account.ID, Limit: limit}, fault.ValidationFailed, "key_id"},
		{g.ID, control.SimulationInput{}, fault.ValidationFailed, "rate_limit"},
		{g.ID, control.SimulationInput{Limit: ratelimit.Config{Daily: rate("1/min")}}, fault.ValidationFailed, "rate_limit.daily"},
	} {
		_, err := h.SimulateLimit(ctx(), c, test.gateway, test.in)
		h.wantCode(err, test.code, test.field)
	}
	kept := &control.Idempotency{KeyID: c.KeyID, Key: "once", Encode: func(any) (int, map[string]string, []byte, error) { return 200, nil, []byte("{}"), nil }}
	must[*control.Simulation](h)(h.SimulateLimit(control.WithIdempotency(ctx(), kept), c, g.ID, control.SimulationInput{Limit: limit}))
	if a := must[*control.StoredResponse](h)(h.StoredResponse(ctx(), c.KeyID, "once", kept.Fingerprint)); a == nil {
		t.Error("the answer is not kept")
	}
}

// TestWithoutDataPlane holds that an offline command does not tell of nothing where it
// knows nothing.
func TestWithoutDataPlane(t *testing.T) {
	h := newHarness(t)
	c := h.caller("a", "admin")
	g := h.gateway(c)
	_, err := h.Traffic(ctx(), c, traffic.Query{})
	h.wantCode(err, fault.Unavailable, "")
	_, err = h.Requests(ctx(), c, requestlog.Filter{}, control.Page{Limit: 1})
	h.wantCode(err, fault.Unavailable, "")
	_, err = h.Limits(ctx(), c, g.ID, control.Page{Limit: 1})
	h.wantCode(err, fault.Unavailable, "")
	_, err = h.SimulateLimit(ctx(), c, g.ID, control.SimulationInput{Limit: ratelimit.Config{Sustained: rate("1/s")}})
	h.wantCode(err, fault.Unavailable, "")
}
