package admit

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/snapshot"
)

// weighted returns a split with one entry, which has a weight.
func weighted(percent string, edit func(*gateway.SplitEntry)) gateway.Split {
	e := gateway.SplitEntry{Upstream: "next", Weight: new(gateway.ParsePercent(percent))}
	if edit != nil {
		edit(&e)
	}
	return gateway.Split{e}
}

// withNext gives a gateway the upstream next.
func withNext(edit func(*gateway.Gateway)) func(*gateway.Gateway) {
	return func(g *gateway.Gateway) {
		g.Others = []gateway.Upstream{{Name: "next", URL: "http://127.0.0.1:10"}}
		if edit != nil {
			edit(g)
		}
	}
}

// sideOf returns the upstream of a request that is forwarded.
func (h *harness) sideOf(req *Request) string {
	h.t.Helper()
	var v Verdict
	h.admit.Decide(req, &v)
	if v.Action != Forward {
		h.t.Fatalf("got the verdict %+v, want the request forwarded", v)
	}
	h.admit.limiter.Release(&v.Charge)
	return v.Upstream.Name
}

func fromAddress(i int) *Request {
	return &Request{Method: "GET", Target: "/p", Host: "h", Client: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}
}

// Guarantee: of many callers, the share that the weight says goes to the weighted side, within three standard deviations; each
// caller stays on its side; a larger weight only adds callers; and three nodes with snapshots of their own agree.
func TestSplitByWeight(t *testing.T) {
	const callers = 20_000
	nodes := []*harness{newHarness(t), newHarness(t), newHarness(t)}
	var g gateway.Gateway
	r := public(route("/p", "GET"))
	for i, h := range nodes {
		if i == 0 {
			g = h.gateway(withNext(nil), r)
		} else {
			h.source.PutGateway(g, r)
		}
	}
	before := make([]bool, callers)
	for _, percent := range []string{"0", "0.25", "5", "5.01", "50", "100"} {
		r.Split = weighted(percent, nil)
		got := 0
		for i, h := range nodes {
			h.source.PutRoute(g.ID, r)
			h.catchUp()
			for caller := range callers {
				is := h.sideOf(fromAddress(caller)) == "next"
				if i > 0 {
					if is != before[caller] {
						t.Fatalf("%s %%: node %d sends caller %d to another side than the first node", percent, i, caller)
					}
					continue
				}
				if before[caller] && !is {
					t.Fatalf("%s %%: caller %d was on the weighted side before the weight was raised, and is not now", percent, caller)
				}
				if before[caller] = is; is {
					got++
				}
			}
		}
		p := float64(gateway.ParsePercent(percent)) / 10_000
		if want, spread := p*callers, 3*math.Sqrt(callers*p*(1-p)); math.Abs(float64(got)-want) > spread {
			t.Errorf("%s %%: got %d of %d callers on the weighted side, want %.0f ± %.0f", percent, got, callers, want, spread)
		}
	}
}

// Guarantee: the addresses of a /64 are one caller, and so are the keys of a rotation, which stay on their side.
func TestCallersOfSplits(t *testing.T) {
	h := newHarness(t)
	split := weighted("50", nil)
	h.gateway(withNext(func(g *gateway.Gateway) { g.Requests.Split = split }), route("/p", "GET"), public(route("/public", "GET")))
	sides := map[string]int{}
	for range 40 {
		first, secret := h.key(nil)
		want := h.sideOf(&Request{Method: "GET", Target: "/p", Host: "h", Authorization: "Bearer " + secret, Authorizations: 1})
		sides[want]++
		_, rotated := h.key(func(k *apikey.Key) { k.BucketID, k.RotatedFrom = first.ID, first.ID })
		if got := h.sideOf(&Request{Method: "GET", Target: "/p", Host: "h", Authorization: "Bearer " + rotated, Authorizations: 1}); got != want {
			t.Errorf("the key that replaced one of side %s goes to %s", want, got)
		}
	}
	if sides["next"] == 0 || sides["default"] == 0 {
		t.Errorf("got %v, want keys on both sides", sides)
	}
	for i := range 40 {
		network := fmt.Sprintf("2001:db8:0:%x::", i)
		ask := func(last string) string {
			return h.sideOf(&Request{Method: "GET", Target: "/public", Host: "h", Client: netip.MustParseAddr(network + last)})
		}
		if one, other := ask("1"), ask("ffff:1"); one != other {
			t.Errorf("two addresses of %s/64 are on the sides %s and %s", network, one, other)
		}
	}
}

// Guarantee: without stickiness, any 10,000 requests in a row meet the weight to 1 in 1,000, over changes of the gateway and its
// routes, and whoever makes them.
func TestSplitOfRequests(t *testing.T) {
	for _, percent := range []string{"0.25", "5", "33.33", "50", "99.9"} {
		h := newHarness(t)
		r := public(route("/p", "GET"))
		r.Split = weighted(percent, func(e *gateway.SplitEntry) { e.Random = true })
		g := h.gateway(withNext(nil), r)
		const all, window = 25_000, 10_000
		sums := make([]int, all+1)
		for i := range all {
			switch {
			case i%5_000 == 4_999:
				h.source.PutRoute(g.ID, r)
				h.catchUp()
			case i%7_000 == 6_999:
				h.source.PutGateway(g, r)
				h.catchUp()
			}
			sums[i+1] = sums[i]
			if h.sideOf(fromAddress(i%3)) == "next" {
				sums[i+1]++
			}
		}
		want := float64(gateway.ParsePercent(percent)) / 10_000 * window
		for from := 0; from+window <= all; from++ {
			if got := sums[from+window] - sums[from]; math.Abs(float64(got)-want) > window/1000 {
				t.Fatalf("%s %%: got %d of the %d requests from number %d on, want %.0f ± %d", percent, got, window, from, want, window/1000)
			}
		}
	}
}

// Guarantee: the first condition that holds decides, before the weight and whatever the order of entries with a weight; a key
// stands for all keys of its rotations; a route's split takes the place of its gateway's, and an empty one splits nothing.
func TestConditionsOfSplits(t *testing.T) {
	h := newHarness(t)
	first, firstSecret := h.key(nil)
	second, secondSecret := h.key(func(k *apikey.Key) { k.BucketID, k.RotatedFrom = first.ID, first.ID })
	_, thirdSecret := h.key(func(k *apikey.Key) { k.BucketID, k.RotatedFrom = first.ID, second.ID })
	_, owned := h.key(func(k *apikey.Key) { k.Owner = "customer-42" })
	_, plain := h.key(nil)
	on := func(upstream string, w gateway.SplitWhen) gateway.SplitEntry {
		return gateway.SplitEntry{Upstream: upstream, When: &w}
	}
	split := gateway.Split{
		weighted("100", nil)[0],
		on("beta", gateway.SplitWhen{Header: map[string]string{"X-Beta": "1"}}),
		on("partner", gateway.SplitWhen{Key: []string{second.ID}, Buckets: []string{first.ID}}),
		on("owner", gateway.SplitWhen{Owner: []string{"customer-42"}}),
		on("default", gateway.SplitWhen{Header: map[string]string{"X-Beta": "2"}}),
	}
	own, none := route("/own", "GET"), route("/none", "GET")
	own.Split, none.Split = gateway.Split{on("beta", gateway.SplitWhen{Owner: []string{"customer-42"}})}, gateway.Split{}
	own.Upstream = "partner"
	h.gateway(func(g *gateway.Gateway) {
		for i, name := range []string{"beta", "next", "owner", "partner"} {
			g.Others = append(g.Others, gateway.Upstream{Name: name, URL: fmt.Sprintf("http://127.0.0.1:%d", 20+i)})
		}
		g.Requests.Split = split
	}, route("/p", "GET"), public(route("/public", "GET")), own, none)
	for _, c := range []struct {
		name, path, key string
		header          headerList
		want, why       string
	}{
		{"a header", "/p", plain, headerList{{"x-beta", "1"}}, "beta", "because of the header X-Beta"},
		{"another value", "/p", plain, headerList{{"x-beta", "11"}}, "next", "100 % of callers, by the key"},
		{"the header twice", "/p", plain, headerList{{"x-beta", "1"}, {"x-beta", "1"}}, "next", "100 % of callers, by the key"},
		{"a later condition", "/p", plain, headerList{{"x-beta", "2"}}, "default", "because of the header X-Beta"},
		{"the header before the key", "/p", secondSecret, headerList{{"x-beta", "1"}}, "beta", "because of the header X-Beta"},
		{"the key", "/p", secondSecret, nil, "partner", "because of the key"},
		{"the key before it", "/p", firstSecret, nil, "partner", "because of the key"},
		{"the key after it", "/p", thirdSecret, nil, "partner", "because of the key"},
		{"the owner", "/p", owned, nil, "owner", "because of the owner of the key"},
		{"no condition", "/p", plain, nil, "next", "100 % of callers, by the key"},
		{"a public route", "/public", "", nil, "next", "100 % of callers, by the address"},
		{"a key on a public route", "/public", owned, nil, "next", "100 % of callers, by the address"},
		{"the split of the route", "/own", owned, headerList{{"x-beta", "1"}}, "beta", "because of the owner of the key"},
		{"the rest of it", "/own", plain, headerList{{"x-beta", "1"}}, "partner", "no condition of the split holds"},
		{"an empty split of the route", "/none", owned, headerList{{"x-beta", "1"}}, "default", ""},
	} {
		var v Verdict
		req := &Request{Method: "GET", Target: c.path, Host: "h", Header: c.header, Client: netip.MustParseAddr("192.0.2.1")}
		if c.key != "" {
			req.Authorization, req.Authorizations = "Bearer "+c.key, 1
		}
		h.admit.Decide(req, &v)
		if v.Action != Forward || v.Upstream.Name != c.want || v.SideReason != c.why {
			t.Errorf("%s: got %v to %v %q, want %s %q", c.name, v.Action, v.Upstream, v.SideReason, c.want, c.why)
		}
	}
}

// headerList is a list of headers with their values.
type headerList [][2]string

func (l headerList) HeaderValue(name string) (value string, count int) {
	for _, h := range l {
		if strings.EqualFold(h[0], name) {
			if count++; count == 1 {
				value = h[1]
			}
		}
	}
	return value, count
}

// Guarantee: with fallback, the other side serves while no target of a side takes part or all drain, whichever side it is, and a
// half-open target gets one request in a second; without it, requests go to their side whatever its state.
func TestFallbackOfSplits(t *testing.T) {
	const base = 10 * time.Second
	for _, state := range []string{"ejected", "drained"} {
		for _, down := range []string{"next", "default"} {
			for _, fallback := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %s, fallback %t", down, state, fallback), func(t *testing.T) {
					h := newHarness(t)
					other := map[string]string{"next": "default", "default": "next"}[down]
					r := public(route("/p", "GET", "POST"))
					percent := map[string]string{"next": "100", "default": "0"}[down]
					r.Split = weighted(percent, func(e *gateway.SplitEntry) { e.Fallback = fallback })
					edit := withNext(nil)
					if state == "drained" {
						edit = withNext(func(g *gateway.Gateway) {
							g.UpstreamNamed(down).SetTargets([]gateway.Target{{URL: "http://127.0.0.1:11", Drain: true}})
						})
					}
					g := h.gateway(edit, r)
					ask := func(method string) string {
						req := fromAddress(1)
						req.Method = method
						return h.sideOf(req)
					}
					want := other
					if !fallback {
						want = down
					}
					if state == "drained" {
						if got := ask("GET"); got != want {
							t.Errorf("got side %s, want %s", got, want)
						}
						return
					}
					if got := ask("GET"); got != down {
						t.Fatalf("got side %s while all take part, want %s", got, down)
					}
					now := func() time.Duration { return time.Duration(h.clock.Now().Mono) }
					u := h.follower.Fleet().Upstream(now(), balance.Name{Account: g.AccountID, Gateway: g.ID, Upstream: down}, failing(base))
					fail(u, now())
					if got := ask("GET"); got != want {
						t.Errorf("got side %s, want %s", got, want)
					}
					if !fallback {
						return
					}
					h.clock.Advance(base)
					if got := ask("POST"); got != other {
						t.Errorf("got side %s for a POST while a target is half-open, want %s", got, other)
					}
					for i, want := range []string{down, other, other} {
						if got := ask("GET"); got != want {
							t.Errorf("request %d while a target is half-open: got side %s, want %s", i, got, want)
						}
					}
					var a balance.Attempts
					a.Begin(now(), u)
					a.Pick(now())
					a.Answer(now(), balance.OK)
					a.End(now(), balance.OK)
					a.Finish(now())
					if got := ask("POST"); got != down {
						t.Errorf("got side %s after the target answered, want %s", got, down)
					}
				})
			}
		}
	}
}

// failing returns a configuration with one target, which is ejected after one failure.
func failing(base time.Duration) *balance.Config {
	return &balance.Config{
		Targets:  []balance.TargetConfig{{URL: "http://127.0.0.1:9", Origin: "o", Address: "127.0.0.1:9", Weight: 1, Use: (*snapshot.Target)(nil)}},
		Ejection: balance.Ejection{Failures: 1, On: balance.On(balance.Connect), Base: base, Max: base, MaxPercent: 50},
	}
}

// fail makes the target of u fail.
func fail(u *balance.Upstream, now time.Duration) {
	var a balance.Attempts
	a.Begin(now, u)
	a.Pick(now)
	a.End(now, balance.Connect)
	a.Finish(now)
}

// Guarantee: without stickiness, the requests of a client's connection that is bound to an upstream go there.
func TestBoundConnectionsStay(t *testing.T) {
	h := newHarness(t)
	r := public(route("/p", "GET"))
	r.Split = weighted("50", func(e *gateway.SplitEntry) { e.Random = true })
	h.gateway(withNext(nil), r)
	for _, bound := range []string{"next", "default"} {
		for range 100 {
			req := fromAddress(1)
			if req.Bound = bound; h.sideOf(req) != bound {
				t.Fatalf("a request of a connection that is bound to %s goes elsewhere", bound)
			}
		}
	}
}

// Guarantee: a split allocates nothing, whichever entry decides.
func TestSplitsDoNotAllocate(t *testing.T) {
	h := newHarness(t)
	r := public(route("/p", "GET"))
	r.Split = append(gateway.Split{{Upstream: "next", When: &gateway.SplitWhen{Header: map[string]string{"X-Beta": "1"}}}}, weighted("50", func(e *gateway.SplitEntry) { e.Fallback = true })...)
	random := public(route("/random", "GET"))
	random.Split = weighted("50", func(e *gateway.SplitEntry) { e.Random = true })
	h.gateway(withNext(func(g *gateway.Gateway) { g.GlobalLimit = config(t, "1000000/s", "", "", "") }), r, random)
	var v Verdict
	for _, target := range []string{"/p", "/random"} {
		req := fromAddress(7)
		req.Target, req.Header = target, headerList{{"x-other", "1"}}
		n := testing.AllocsPerRun(1000, func() { h.admit.Decide(req, &v) })
		if n != 0 {
			t.Errorf("%s: got %.1f allocations of a decision, want none", target, n)
		}
	}
}

// BenchmarkSplit measures a decision without a split, and with one.
func BenchmarkSplit(b *testing.B) {
	for _, c := range []struct {
		name  string
		split gateway.Split
	}{{"none", nil}, {"weight", weighted("5", nil)}, {"fallback", weighted("5", func(e *gateway.SplitEntry) { e.Fallback = true })}} {
		b.Run(c.name, func(b *testing.B) {
			h := newHarness(b)
			r := public(route("/p", "GET"))
			r.Split = c.split
			h.gateway(withNext(nil), r)
			var v Verdict
			req := fromAddress(7)
			b.ReportAllocs()
			for b.Loop() {
				h.admit.Decide(req, &v)
				h.admit.limiter.Release(&v.Charge)
			}
		})
	}
}
