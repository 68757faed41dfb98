package control_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/requestlog"
	requestwriter "github.com/keygate/keygate/internal/requestlog/writer"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/traffic/meter"
)

// levels are the limits of every gateway.
type levels []ratelimit.Level

func (l levels) Levels(_ context.Context, _ string, f func(ratelimit.Level)) {
	for _, one := range l {
		f(one)
	}
}

// comparisons counts how many routes may be compared for near ones. It knows no route.
type comparisons int

func (*comparisons) Unrouted(string, string, []string) []string  { return nil }
func (*comparisons) Unmatched(string, string, []string) []string { return nil }

func (c *comparisons) Nearest(_, _, _, _ string, looks int) ([]gateway.NearRoute, string, bool) {
	*c += comparisons(looks)
	return nil, "", false
}

// plane emits access records as a data plane does.
type plane struct {
	*accesslog.Shard
	compared         comparisons
	account, gateway [16]byte
	clock            *clock
	method           accesslog.Method // of the requests; GET if it is zero
}

// withPlane replaces the service by a service with a data plane, and returns the data plane, whose
// requests belong to the gateway.
func (h *harness) withPlane(accountID, gatewayID string, l levels) *plane {
	h.tb.Helper()
	counts := must[*meter.Meter](h)(meter.New(meter.Config{Store: h.db, Now: h.clock.now}))
	requests := must[*requestwriter.Writer](h)(requestwriter.New(requestwriter.Config{Store: h.db, Now: h.clock.now}))
	records := must[*accesslog.Collector](h)(accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{counts, requests}}))
	p := &plane{Shard: records.Shard(), clock: h.clock}
	h.Service = must[*control.Service](h)(control.New(control.Config{
		Store: h.db, Publisher: h.pub, Sealer: h.box, Now: h.clock.now, Random: rand.Reader, GatewayDomain: domain,
		Sources: control.Sources{AccessLog: records, Traffic: counts, Requests: requests, Levels: l, Routes: &p.compared},
	}))
	p.account, _ = id.Parse(id.Account, accountID)
	p.gateway, _ = id.Parse(id.Gateway, gatewayID)
	return p
}

// end emits the access record of a request that ends now.
func (p *plane) end(route, key string, d accesslog.Result, status uint16) (requestID string) {
	r := accesslog.Record{Account: p.account, Gateway: p.gateway, Request: id.NewFast(), Start: p.clock.now().UnixMicro(), Result: d, Status: status, Method: cmp.Or(p.method, accesslog.GET)}
	r.Route, _ = id.Parse(id.Route, route)
	r.Key, _ = id.Parse(id.Key, key)
	p.Emit(&r, "", "/orders")
	return id.Format(id.Request, r.Request)
}

// Guarantee: reports and the request log have every request that ended before the call, and
// none of another account.
func TestReportsAreComplete(t *testing.T) {
	h := newHarness(t)
	c, other := h.caller("a", "admin"), h.caller("b", "admin")
	g := h.gateway(c)
	p := h.withPlane(c.Account.ID, g.ID, nil)
	for earlier := range int64(3) {
		want, rejected := earlier+1, p.end("", "", accesslog.KeyInvalid, 401)
		rows := must[[]traffic.Row](h)(h.Traffic(ctx(), c, traffic.Query{}))
		if len(rows) != 61 || rows[60].Requests != want || rows[60].Unauthorized != want || rows[0].Requests != 0 {
			t.Fatalf("got %d rows, the last %+v; want 61, the last with %d unauthorized requests", len(rows), rows[len(rows)-1], want)
		}
		list := must[[]requestlog.Request](h)(h.Requests(ctx(), c, requestlog.Filter{}, control.Page{Limit: 25}))
		if int64(len(list)) != want || !slices.ContainsFunc(list, func(r requestlog.Request) bool { return r.ID == rejected }) {
			t.Fatalf("got %d requests; want %d, with %s", len(list), want, rejected)
		}
		one := must[*requestlog.Request](h)(h.Request(ctx(), c, rejected))
		if one.Decision.Check != "key" || one.Path != "/orders" {
			t.Fatalf("got request %+v; want /orders, rejected by the check key", one)
		}
		_, err := h.Request(ctx(), other, rejected)
		h.wantCode(err, fault.NotFound, "")
	}
	rows := must[[]traffic.Row](h)(h.Traffic(ctx(), other, traffic.Query{GatewayID: g.ID}))
	if len(rows) != 61 || rows[60].Requests != 0 {
		t.Errorf("got %d rows for another account, the last %+v; want 61 without requests", len(rows), rows[len(rows)-1])
	}
	if list := must[[]requestlog.Request](h)(h.Requests(ctx(), other, requestlog.Filter{}, control.Page{Limit: 25})); len(list) != 0 {
		t.Errorf("got requests %+v for another account; want none", list)
	}
}

// Guarantee: docs/limits.md, routes compared with a request: a list with many requests for which there is no route
// compares no more than one with a few, and a single request enough.
func TestComparisonsOfAListAreBounded(t *testing.T) {
	h := newHarness(t)
	c := h.caller("a", "admin")
	p := h.withPlane(c.Account.ID, h.gateway(c).ID, nil)
	var last string
	for range 100 {
		last = p.end("", "", accesslog.NoRoute, 404)
	}
	must[*requestlog.Request](h)(h.Request(ctx(), c, last))
	if p.compared != 2_000 {
		t.Errorf("one request is compared with up to %d routes, want 2,000", p.compared)
	}
	for _, limit := range []int{1, 5, 30, 100} {
		p.compared = 0
		if list := must[[]requestlog.Request](h)(h.Requests(ctx(), c, requestlog.Filter{}, control.Page{Limit: limit})); len(list) != limit || p.compared > 10_000 || p.compared < 9_000 && limit > 4 {
			t.Errorf("a list of %d is compared with up to %d routes, want 10,000 in all", len(list), p.compared)
		}
	}
	tail := must[*control.RequestTail](h)(h.FollowRequests(c, requestlog.Filter{}))
	defer tail.Close()
	for range 100 {
		last = p.end("", "", accesslog.NoRoute, 404)
	}
	must[*requestlog.Request](h)(h.Request(ctx(), c, last)) // once it is written, the tail has it
	p.compared = 0
	list, _, err := tail.Take(ctx())
	if err != nil || len(list) != 100 || p.compared > 2_000 {
		t.Errorf("a stream got %d requests, error %v, compared with up to %d routes; want 100 and 2,000 in all", len(list), err, p.compared)
	}
}

// Guarantee: a report is rejected if its interval is unknown or not stored for so long, its
// times are out of order, or it would have too many rows. The limits themselves are valid.
func TestInvalidReportsAreRejected(t *testing.T) {
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

// Guarantee: the pages of the limits have every limit once, in the same order for every page
// size.
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
		owner := id.NewFast()
		for _, limit := range []string{"a", "b"} {
			all = append(all, ratelimit.Level{Status: ratelimit.Status{Scope: ratelimit.PlanScope, Label: ratelimit.NewLabel("pro", limit, ratelimit.Requests)}, Owner: owner})
		}
	}
	h.withPlane(c.Account.ID, g.ID, all)
	var want []control.LimitLevel
	for _, limit := range []int{100, 1, 7} {
		var got []control.LimitLevel
		for after := ""; ; {
			page := must[[]control.LimitLevel](h)(h.Limits(ctx(), c, g.ID, control.Page{Limit: limit, After: after}))
			if len(page) > limit {
				t.Fatalf("got a page of %d limits; want at most %d", len(page), limit)
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
			t.Errorf("got %d limits in pages of %d; want %d in the order of other pages", len(got), limit, len(all))
		}
	}
	if want[0].Scope != ratelimit.GlobalScope || want[0].Remaining != 8 || want[0].RouteID != "" {
		t.Errorf("got first limit %+v; want the global one, with 8 remaining", want[0])
	}
	_, err := h.Limits(ctx(), other, g.ID, control.Page{Limit: 25})
	h.wantCode(err, fault.NotFound, "")
}

// Guarantee: a simulation applies a limit to the requests that were counted before the call.
// Its response is stored for an Idempotency-Key, and invalid input is rejected.
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
			t.Errorf("%s: got %+v; want 6 requests of 2 keys, 4 of them refused", name, s)
		}
	}
	account := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Level: "account"}))
	othersGateway := h.gateway(other)
	for _, test := range []struct {
		gateway string
		in      control.SimulationInput
		code    fault.Code
		field   string
	}{
		{othersGateway.ID, control.SimulationInput{Limit: limit}, fault.NotFound, ""},
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
		t.Error("got no stored response; want it")
	}
}

// Guarantee: without a data plane, as in an offline command, reports are unavailable instead of
// empty.
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
