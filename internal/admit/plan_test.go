package admit

import (
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Guarantee: for every combination of the plans that a key, its owner and the gateway have or do not have, the limits that
// apply are those that plans.md, section 3 says.
func TestWhichLimitsOfPlansApply(t *testing.T) {
	h := newHarness(t)
	both := []string{"o owner 10/s", "k key 10/s"}
	ofKey, ofOwner, ofGateway, empty := h.plan("key", both...), h.plan("owner", both...), h.plan("gateway", both...), h.plan("empty")
	const none, unowned = "", "no owner"
	for _, c := range []struct{ key, owner, gateway, want string }{
		{none, unowned, none, ""},
		{none, unowned, ofGateway.ID, "gateway.o gateway.k"},
		{none, none, none, ""},
		{none, none, ofGateway.ID, "gateway.o gateway.k"},
		{none, ofOwner.ID, none, "owner.o owner.k"},
		{none, ofOwner.ID, ofGateway.ID, "owner.o owner.k"},
		{ofKey.ID, unowned, none, "key.k"},
		{ofKey.ID, unowned, ofGateway.ID, "gateway.o key.k"},
		{ofKey.ID, none, none, "key.k"},
		{ofKey.ID, none, ofGateway.ID, "gateway.o key.k"},
		{ofKey.ID, ofOwner.ID, none, "owner.o key.k"},
		{ofKey.ID, ofOwner.ID, ofGateway.ID, "owner.o key.k"},
		// A plan without limits is a plan.
		{empty.ID, ofOwner.ID, ofGateway.ID, "owner.o"},
		{none, empty.ID, ofGateway.ID, ""},
		{empty.ID, none, ofGateway.ID, "gateway.o"},
		{none, none, empty.ID, ""},
	} {
		h.gateway(byDefault(c.gateway), route("/", "GET"), public(route("/open", "GET")))
		var o *owner.Owner
		if c.owner != unowned {
			stored := h.owner("customer", c.owner)
			o = &stored
		}
		_, secret := h.keyOf(o, c.key)
		if got := charged(h.get("/", secret)); got != c.want {
			t.Errorf("key %q, owner %q, gateway %q: got the limits %q, want %q", c.key, c.owner, c.gateway, got, c.want)
		}
		if got := charged(h.get("/open", secret)); got != "" {
			t.Errorf("a public route: got the limits %q, want none", got)
		}
		if got, want := charged(h.get("/none", secret)), c.want; got != want {
			t.Errorf("a path without a route: got the limits %q, want %q", got, want)
		}
	}
}

// Guarantee: a limit with per: owner counts the keys of an owner together and a key without one alone; one with per: key
// counts each key, with those of its rotation.
func TestWhomALimitOfAPlanCounts(t *testing.T) {
	for _, c := range []struct {
		per                        string
		other, stranger, successor accesslog.Result // after the first key has used up the limit
	}{
		{"owner", accesslog.Limited, accesslog.Forwarded, accesslog.Limited},
		{"key", accesslog.Forwarded, accesslog.Forwarded, accesslog.Limited},
	} {
		h := newHarness(t)
		p := h.plan("free", "few "+c.per+" 1/day")
		h.gateway(byDefault(p.ID), route("/", "GET"))
		o := h.owner("customer", "")
		first, secret := h.keyOf(&o, "")
		_, other := h.keyOf(&o, "")
		_, stranger := h.keyOf(nil, "")
		next, successor := h.keyOf(&o, "")
		next.BucketID = first.ID
		h.source.PutKey(next)
		h.catchUp()
		if v := h.get("/", secret); v.Action != Forward {
			t.Fatalf("per %s: the first request: %v", c.per, v.Fault())
		}
		for name, check := range map[string]struct {
			secret string
			want   accesslog.Result
		}{"the same key": {secret, accesslog.Limited}, "another key of the owner": {other, c.other}, "a key without owner": {stranger, c.stranger}, "the successor": {successor, c.successor}} {
			if got := h.get("/", check.secret).result(); got != check.want {
				t.Errorf("per %s: %s: got result %d, want %d", c.per, name, got, check.want)
			}
		}
		if got := h.get("/", stranger).result(); got != accesslog.Limited {
			t.Errorf("per %s: a key without owner, again: got result %d, want it limited", c.per, got)
		}
	}
}

// Guarantee: a limit applies to the gateway and to the routes that it names, and to no others.
func TestRoutesOfALimitOfAPlan(t *testing.T) {
	h := newHarness(t)
	other := h.gateway(func(g *gateway.Gateway) { g.Hostname, g.HostGiven = "other.example", true }, route("/orders/{id}", "GET"))
	g := h.gateway(nil, route("/orders/{id}", "GET"), route("/v1/a", "GET"), route("/free", "GET"))
	p := h.plan("free", "here key 9/s "+g.ID, "some key 9/s "+g.ID+" /orders/{id} /v1/*", "there key 9/s "+other.ID, "all key 9/s")
	_, secret := h.keyOf(nil, p.ID)
	for target, want := range map[string]string{
		"/orders/7": "free.here free.some free.all", "/v1/a": "free.here free.some free.all", "/free": "free.here free.all", "/none": "free.here free.all",
	} {
		if got := charged(h.get(target, secret)); got != want {
			t.Errorf("%s: got the limits %q, want %q", target, got, want)
		}
	}
	v := h.decide(Request{Host: "other.example", Target: "/orders/7", Authorization: "Bearer " + secret})
	if got, want := charged(v), "free.there free.all"; got != want {
		t.Errorf("the other gateway: got the limits %q, want %q", got, want)
	}
}

// Guarantee: a 429 names the plan and the limit in its body and its record, and the header fields have an item for it.
func TestRefusalByALimitOfAPlan(t *testing.T) {
	h := newHarness(t)
	p := h.plan("pro", "per-minute owner 1/min")
	h.gateway(nil, route("/", "GET"))
	o := h.owner("customer", p.ID)
	_, secret := h.keyOf(&o, "")
	if got, want := fields(h.get("/", secret))["RateLimit"], `"pro.per-minute";r=0;t=60`; got != want {
		t.Errorf("the admitted request: got RateLimit %q, want %q", got, want)
	}
	v := h.get("/", secret)
	_, body := fault.Response(v.Fault(), "req_1")
	const want = `{"error":"rate_limit_exceeded","message":"the limit pro.per-minute of the plan is exceeded: wait for the number of seconds in the Retry-After header, then try again",` +
		`"limit":1,"remaining":0,"reset_at":1787745660,"limit_scope":"plan","limit_name":"pro.per-minute","request_id":"req_1"}` + "\n"
	if string(body) != want {
		t.Errorf("got body %s, want %s", body, want)
	}
	var r accesslog.Record
	v.Record(&r)
	if r.Result != accesslog.Limited || r.LimitScope != uint8(ratelimit.PlanScope) || v.Detail() != "pro.per-minute" {
		t.Errorf("got result %d, scope %d and detail %q, want a limit of pro.per-minute", r.Result, r.LimitScope, v.Detail())
	}
	if got := fields(v)["RateLimit-Policy"]; got != `"pro.per-minute";q=1;w=60;qu="requests"` {
		t.Errorf("got RateLimit-Policy %q, want one item", got)
	}
}

// Guarantee: an edit keeps what was used of a limit, converted to its new rate. A limit that is new or renamed, counts
// others or belongs to another plan starts full.
func TestEditsOfPlans(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit string // of the plan after 4 of 10 requests are used
		left  int64
	}{
		{"unchanged", "a key 10/day", 5}, {"raised", "a key 100/day", 95}, {"lowered", "a key 5/day", 0}, {"renamed", "b key 10/day", 9},
		{"counts owners", "a owner 10/day", 9},
	} {
		h := newHarness(t)
		p := h.plan("free", "a key 10/day")
		h.gateway(byDefault(p.ID), route("/", "GET"))
		o := h.owner("customer", "")
		_, secret := h.keyOf(&o, "")
		for range 4 {
			h.get("/", secret)
		}
		p.Limits = h.planLimits(c.limit)
		h.source.PutPlan(p)
		h.catchUp()
		v := h.get("/", secret)
		if got := v.Charge.Status(0).Remaining; got != c.left || v.Action != Forward {
			t.Errorf("%s: got %d requests left (%v), want %d", c.name, got, v.Fault(), c.left)
		}
		other := h.plan("other", c.limit)
		o.PlanID = other.ID
		h.source.PutOwner(o)
		h.catchUp()
		if v := h.get("/", secret); v.Charge.Status(0).Remaining != v.Charge.Status(0).Limit-1 {
			t.Errorf("%s: after a move to another plan, %d of %d requests are left, want all but one", c.name, v.Charge.Status(0).Remaining, v.Charge.Status(0).Limit)
		}
		o.PlanID = ""
		h.source.PutOwner(o)
		h.catchUp()
		if v := h.get("/", secret); v.Charge.Status(0).Remaining != max(0, c.left-1) {
			t.Errorf("%s: back on the plan, %d requests are left, want %d", c.name, v.Charge.Status(0).Remaining, c.left-1)
		}
	}
}

// Guarantee: more limits than a charge has room for of its own apply too, all of them or none, and cost no allocation once
// the room was made.
func TestManyLimitsOfPlans(t *testing.T) {
	h := newHarness(t)
	names := "abcdefgh"
	limits := func(per string) (all []string) {
		for _, c := range names {
			all = append(all, string(c)+" "+per+" 1000000/day")
		}
		all[7] = "h " + per + " 400/day"
		return all
	}
	ofKey, ofOwner := h.plan("key", limits("key")...), h.plan("owner", limits("owner")...)
	h.gateway(func(g *gateway.Gateway) { g.GlobalLimit = config(t, "1000000/s", "", "", "") }, limited(route("/", "GET"), config(t, "1000000/s", "", "1000000/day", "")))
	o := h.owner("customer", ofOwner.ID)
	_, secret := h.keyOf(&o, ofKey.ID)
	v := h.get("/", secret)
	if v.Charge.Shown() != 19 || v.Charge.Worst().Label.String() != "owner.h" {
		t.Fatalf("got %d limits, the worst of them %v, want 19 and owner.h", v.Charge.Shown(), v.Charge.Worst().Label)
	}
	req := Request{Method: "GET", Host: "any.example", Target: "/", Authorization: "Bearer " + secret, Authorizations: 1}
	room := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(300, func() { h.admit.Decide(&req, v); v.AppendFields(room) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	for range 400 {
		h.admit.Decide(&req, v)
	}
	if v.Action != Refuse || v.Charge.Status(0).Remaining != 1_000_000-400 {
		t.Errorf("got %d and %d requests left of key.a, want a refusal and a charge of 400 requests", v.Action, v.Charge.Status(0).Remaining)
	}
}

// Guarantee: a decision with a rate, a quota and a limit of requests in flight, and its end, allocate nothing.
func TestQuotasAndSlotsAllocateNothing(t *testing.T) {
	h := newHarness(t)
	p := h.plan("pro", "a owner 1000000/day", "q owner quota:100000000/month", "c owner 5")
	h.gateway(nil, route("/", "GET"))
	o := h.owner("customer", p.ID)
	_, secret := h.keyOf(&o, "")
	req := Request{Method: "GET", Host: "any.example", Target: "/", Authorization: "Bearer " + secret, Authorizations: 1}
	v, used, room := h.get("/", secret), &ratelimit.Used{}, make([]byte, 0, 4096)
	h.admit.Settle(&v.Charge, used)
	if n := testing.AllocsPerRun(300, func() {
		if h.admit.Decide(&req, v); v.Action != Forward || v.Charge.Shown() < 3 {
			t.Fatalf("got the action %d with %d limits, want the three of the plan, which admit", v.Action, v.Charge.Shown())
		}
		v.AppendFields(room)
		h.admit.Settle(&v.Charge, used)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// Guarantee: the keys of a suspended owner are 403 owner_suspended when the call that suspends it returns, before the route
// and the scope are looked at, and work again when it is resumed. Nothing is charged meanwhile.
func TestSuspendedOwner(t *testing.T) {
	h := newHarness(t)
	p := h.plan("free", "a owner 10/day")
	h.gateway(nil, route("/", "GET"))
	o := h.owner("customer", p.ID)
	_, secret := h.keyOf(&o, "")
	_, other := h.keyOf(nil, p.ID)
	h.get("/", secret)
	o.State = owner.Suspended
	h.source.PutOwner(o)
	h.catchUp()
	for _, target := range []string{"/", "/none"} {
		v := h.get(target, secret)
		if v.Code != fault.Forbidden || v.Auth != fault.OwnerSuspended || v.result() != accesslog.OwnerSuspended || v.Route != [16]byte{} || !v.Authenticated {
			t.Errorf("%s: got %v with result %d, want a 403 owner_suspended", target, v.Fault(), v.result())
		}
		if charged(v) != "free.a" || v.Charge.Status(0).Remaining != 9 {
			t.Errorf("%s: got the limits %q, want free.a with 9 requests left", target, charged(v))
		}
	}
	if v := h.get("/", other); v.Action != Forward {
		t.Errorf("a key without owner: got %v, want it admitted", v.Fault())
	}
	o.State = owner.Active
	h.source.PutOwner(o)
	h.catchUp()
	if v := h.get("/", secret); v.Action != Forward || v.Charge.Status(0).Remaining != 8 {
		t.Errorf("after it was resumed: got %v with %d left, want it admitted", v.Fault(), v.Charge.Status(0).Remaining)
	}
}

// Guarantee: a long exchange of an owner that is suspended is cut as for a revocation, unless the gateway keeps streams.
func TestSuspensionEndsExchanges(t *testing.T) {
	for keeps, want := range map[bool]accesslog.Result{false: accesslog.OwnerSuspended, true: accesslog.Forwarded} {
		h := newHarness(t)
		h.gateway(func(g *gateway.Gateway) { g.Requests.KeepStreams = keeps }, route("/", "GET"))
		o := h.owner("customer", "")
		_, secret := h.keyOf(&o, "")
		v := h.get("/", secret)
		a := v.Admission("GET")
		o.State = owner.Suspended
		h.source.PutOwner(o)
		h.catchUp()
		if h.admit.Unchanged(v) {
			t.Error("the verdict counts as unchanged")
		}
		r := h.admit.Review()
		if got := r.Cut(&a); got != want {
			t.Errorf("keeps streams %v: got result %d, want %d", keeps, got, want)
		}
		v.Withdraw(r.Result(&a), &r, nil)
		if v.Auth != fault.OwnerSuspended || v.Route != [16]byte{} {
			t.Errorf("got %v, want a 403 owner_suspended", v.Fault())
		}
	}
}

// Guarantee: a key whose limit of a plan cannot be counted, because the account uses as many buckets as it may, is refused
// with 503.
func TestPlansBeyondTheMemoryOfBuckets(t *testing.T) {
	h := newHarnessWith(t, func(c *snapshot.Config) { c.BucketBytes = 16 << 10 })
	p := h.plan("free", "a key 1/s")
	h.gateway(byDefault(p.ID), route("/", "GET"))
	var v *Verdict
	for range 1000 {
		_, secret := h.keyOf(nil, "")
		if v = h.get("/", secret); v.Action != Forward {
			break
		}
	}
	if v.Code != fault.Unavailable || v.Fault().Message != snapshot.NoRoomForPlan {
		t.Fatalf("got %v, want a 503", v.Fault())
	}
}

// Guarantee: a key and a route with a limit of requests in flight of their own take memory only while they are used, and it
// counts towards the account's. A request without room is 503.
func TestOwnSlotsBeyondTheMemoryOfBuckets(t *testing.T) {
	h := newHarnessWith(t, func(c *snapshot.Config) { c.BucketBytes = 16 << 10 })
	h.gateway(nil, route("/", "GET"))
	var secrets []string
	for range 1000 {
		_, secret := h.key(func(k *apikey.Key) { k.Concurrency = 2 })
		secrets = append(secrets, secret)
	}
	if used := h.follower.BucketBudget().Used(); used != 0 {
		t.Errorf("%d bytes are used before the first request", used)
	}
	var v *Verdict
	for _, secret := range secrets {
		if v = h.get("/", secret); v.Action != Forward {
			break
		}
	}
	if v.Code != fault.Unavailable {
		t.Fatalf("got %v, want a 503", v.Fault())
	}
}
