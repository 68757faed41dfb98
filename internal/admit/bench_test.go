package admit

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/ratelimit"
)

// gitHub is a harness with the routes of GitHub's OpenAPI document, all four limits on each
// request, and many keys.
type gitHub struct {
	*harness
	requests []Request
}

func newGitHub(t testing.TB, keys int) *gitHub {
	t.Helper()
	return newGitHubOf(t, newHarness(t), keys, func(int, *apikey.Key) {})
}

// newGitHubOf is newGitHub whose keys are as edit says.
func newGitHubOf(t testing.TB, h *harness, keys int, edit func(i int, k *apikey.Key)) *gitHub {
	t.Helper()
	limit := config(t, "1000000000/s", "1000000000/s", "1000000000/day", "")
	parameter := regexp.MustCompile(`\{[^}]*\}`)
	text, err := os.ReadFile("../gateway/testdata/github_operations.txt")
	if err != nil {
		t.Fatal(err)
	}
	var routes []gateway.Route
	for line := range strings.Lines(string(text)) {
		method, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		if method == "#" {
			continue
		}
		routes = append(routes, limited(route(path, method), limit))
	}
	secrets := make([]string, keys)
	perKey := ratelimit.RateOf(rate(t, "1000000000/s"))
	for i := range secrets {
		if secrets[i], err = apikey.Generate(apikey.GatewayLevel, h.random); err != nil {
			t.Fatal(err)
		}
		k := apikey.Key{ID: id.New(id.Key), AccountID: h.account.ID, Level: apikey.GatewayLevel, Digest: apikey.DigestOf(secrets[i]), Scope: apikey.Scopes{{Word: apikey.Admin}}, RateLimit: perKey}
		edit(i, &k)
		h.source.PutKey(k)
	}
	h.gateway(func(g *gateway.Gateway) {
		g.Hostname, g.HostGiven, g.GlobalLimit = "github.example", true, config(t, "1000000000/s", "", "", "")
	}, routes...)
	g := &gitHub{harness: h}
	for i := range 4096 {
		r := routes[i*37%len(routes)]
		g.requests = append(g.requests, Request{
			Method: r.Methods[0], Target: parameter.ReplaceAllString(r.Path, "value-17") + "?per_page=30", Host: "github.example",
			Authorization: "Bearer " + secrets[i*7919%keys], Authorizations: 1,
		})
	}
	var v Verdict
	for i := range g.requests {
		h.decide(g.requests[i]) // daily caps reserve their first range
		if h.admit.Decide(&g.requests[i], &v); v.Action != Forward {
			t.Fatalf("%s: got %v, want it admitted", g.requests[i].Target, v.Fault())
		}
	}
	return g
}

// measure calls f with one request after the other. Besides the mean it reports the
// median of groups of 64 calls, which other work of the machine affects less.
func (g *gitHub) measure(b *testing.B, f func(req *Request)) {
	const group = 64
	b.ReportAllocs()
	took := make([]time.Duration, 0, 1<<20)
	i, n := 0, 0
	began := time.Now()
	for b.Loop() {
		f(&g.requests[i])
		if i++; i == len(g.requests) {
			i = 0
		}
		if n++; n%group == 0 {
			now := time.Now()
			if len(took) < cap(took) {
				took = append(took, now.Sub(began))
			}
			began = now
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2])/group, "median-ns/op")
		b.ReportMetric(float64(took[len(took)/10])/group, "p10-ns/op")
	}
}

// BenchmarkDecide measures one whole decision: a key among 100,000, a route
// among GitHub's 1,223 operations, scope, and four limits. The variant busy cycles
// through 64 keys and routes, as if some clients made most of the traffic. The
// variant spread cycles through 4,096, so that the key, the route and their buckets
// are not in the nearer caches.
func BenchmarkDecide(b *testing.B) {
	newGitHub(b, 100_000).benchmark(b)
}

// withPlan returns keys with five limits, of which one is the key's daily cap, and with the limits of their owner's plan in
// addition. An owner has ten keys.
func withPlan(b *testing.B, limits ...string) *gitHub {
	b.Helper()
	h := newHarness(b)
	p := h.plan("pro", limits...)
	var o owner.Owner
	return newGitHubOf(b, h, 100_000, func(i int, k *apikey.Key) {
		if i%10 == 0 {
			o = owner.Owner{ID: id.New(id.Owner), AccountID: h.account.ID, ExternalID: fmt.Sprint("customer ", i), State: owner.Active, PlanID: p.ID}
			h.source.PutOwner(o)
		}
		k.Owner, k.OwnerID = o.ExternalID, o.ID
		var err error
		if k.RateLimit, err = ratelimit.ParseKeyObject("1000000000/s", "", "1000000000/day"); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkDecidePlans compares decisions with five limits and with three limits of a plan beside them, a rate, a quota and a
// limit of requests in flight of each owner, with the ends of the requests: groups of 64 calls in turn, so that other work of the machine slows both. It reports the tenth
// percentile of each kind of group, and the difference.
func BenchmarkDecidePlans(b *testing.B) {
	kinds := [2]*gitHub{withPlan(b), withPlan(b, "second owner 1000000000/s", "month owner quota:1000000000000/month", "parallel owner 1000000")}
	for _, g := range kinds {
		g.useRealClock()
	}
	for _, requests := range []int{64, 4096} {
		b.Run(fmt.Sprintf("requests-%d", requests), func(b *testing.B) {
			b.ReportAllocs()
			var v Verdict
			var took [2][]float64
			i := 0
			for b.Loop() {
				for kind, g := range kinds {
					began := time.Now()
					for n := range 64 {
						for g.admit.Decide(&g.requests[(i+n)%requests], &v); v.Action != Forward; g.admit.Decide(&g.requests[(i+n)%requests], &v) {
							if v.Action == Refuse {
								b.Fatal(v.Fault())
							}
							if err := g.admit.Wait(b.Context(), &v); err != nil {
								b.Fatal(err)
							}
						}
						g.admit.Settle(&v.Charge, &ratelimit.Used{})
					}
					took[kind] = append(took[kind], float64(time.Since(began))/64)
				}
				i = (i + 64) % requests
			}
			for kind := range took {
				slices.Sort(took[kind])
			}
			five, eight := took[0][len(took[0])/10], took[1][len(took[1])/10]
			b.ReportMetric(five, "five-ns")
			b.ReportMetric(eight, "eight-ns")
			b.ReportMetric(eight-five, "more-ns")
		})
	}
}

// useRealClock makes decisions read the real clocks, which is a part of them. The wall clock starts on the day for which
// ranges of the daily caps have been reserved.
func (g *gitHub) useRealClock() {
	start := g.clock.Now()
	clock := ratelimit.NewClock().Now
	g.admit.cfg.Now = func() ratelimit.Instant {
		now := clock()
		return ratelimit.Instant{Mono: start.Mono + now.Mono, Wall: start.Wall + now.Mono}
	}
}

// benchmark measures decisions about the requests.
func (g *gitHub) benchmark(b *testing.B) {
	g.useRealClock()
	var v Verdict
	decide := func(req *Request) {
		if g.admit.Decide(req, &v); v.Action == Refuse {
			b.Fatal(v.Fault())
		}
	}
	all := g.requests
	for _, c := range []struct {
		name     string
		requests int
	}{{"busy", 64}, {"spread", len(all)}} {
		b.Run(c.name, func(b *testing.B) {
			g.requests = all[:c.requests]
			g.measure(b, decide)
		})
	}
}

// BenchmarkDecideParts measures each part of that decision separately.
func BenchmarkDecideParts(b *testing.B) {
	g := newGitHub(b, 100_000)
	s := g.follower.Current()
	gw := s.GatewayByHost("github.example")
	part := func(name string, f func(req *Request)) {
		b.Run(name, func(b *testing.B) { g.measure(b, f) })
	}
	var t target
	part("target", func(req *Request) { t = target{}; t.read(req) })
	clock := ratelimit.NewClock().Now
	var now ratelimit.Instant
	part("clock", func(*Request) { now = clock() })
	part("host", func(req *Request) { s.GatewayByHost(req.Host) })
	part("route", func(req *Request) {
		path, _, _ := strings.Cut(req.Target, "?")
		n, _ := gw.Find(path)
		n.Route(req.Method)
	})
	part("form-and-checksum", func(req *Request) { apikey.Inspect(req.Authorization[len("Bearer "):]) })
	part("sha256", func(req *Request) { apikey.DigestOf(req.Authorization[len("Bearer "):]) })
	digests := make([]apikey.Digest, len(g.requests))
	for i := range g.requests {
		digests[i] = apikey.DigestOf(g.requests[i].Authorization[len("Bearer "):])
	}
	next := 0
	part("key-look-up", func(*Request) { s.KeyByDigest(digests[next%len(digests)]); next++ })
	key := s.KeyByDigest(digests[0])
	user, _ := gw.Find("/user")
	v, limiter := Verdict{Action: Forward}, ratelimit.Limiter{}
	add := func() {
		v.Charge.Clear()
		key.AddLimits(&v.Charge)
		user.Route("GET").AddLimits(&v.Charge, [16]byte{}, clientip.Group{})
		gw.AddLimit(&v.Charge)
	}
	part("add-limits", func(*Request) { add() })
	add()
	at := g.clock.Now()
	part("four-limits", func(*Request) { at.Mono += 100; limiter.Decide(at, &v.Charge) })
	room := make([]byte, 0, 1024)
	part("append-fields", func(*Request) { v.AppendFields(room) })
	_ = now
}

// Guarantee: a decision allocates nothing, whether it admits the request or refuses it for
// any reason that a client can cause.
func TestDecideAllocatesNothing(t *testing.T) {
	h := newHarness(t)
	var err error
	h.gateway(func(g *gateway.Gateway) { g.GlobalLimit = config(t, "1000000000/s", "", "", "") },
		limited(route("/a/{id}", "GET"), config(t, "1000000000/s", "", "1000000000/day", "")),
		limited(route("/each", "GET"), config(t, "1000000000/s", "", "1000000000/day", ratelimit.PerKey)),
		limited(route("/little", "GET"), config(t, "1/day", "", "", "")))
	_, key := h.key(func(k *apikey.Key) { k.RateLimit = ratelimit.RateOf(rate(t, "1000000000/s")) })
	_, ownDaily := h.key(func(k *apikey.Key) {
		if k.RateLimit, err = ratelimit.ParseKeyObject("1000000000/s", "", "1000000000/day"); err != nil {
			t.Fatal(err)
		}
	})
	_, used := h.key(func(k *apikey.Key) {
		if k.RateLimit, err = ratelimit.ParseKeyObject("", "", "1/day"); err != nil {
			t.Fatal(err)
		}
	})
	reader := h.scoped("read:b")
	room := make([]byte, 0, 1024)
	for name, req := range map[string]Request{
		"forwarded":       {Target: "/a/1?x=1", Authorization: "Bearer " + key},
		"encoded":         {Target: "/%61/1?x=1", Authorization: "Bearer " + key},
		"by parameter":    {Target: "/a/1?x=1&api_key=" + key + "&y=2"},
		"limit each":      {Target: "/each", Authorization: "Bearer " + key},
		"key's daily":     {Target: "/each", Authorization: "Bearer " + ownDaily},
		"key's day used":  {Target: "/a/1", Authorization: "Bearer " + used},
		"host with port":  {Target: "/a/1", Host: "A.example.:8080", Authorization: "Bearer " + key},
		"malformed":       {Target: "/a/../b"},
		"no key":          {Target: "/a/1"},
		"unknown key":     {Target: "/a/1", Authorization: "Bearer kg_nonsense"},
		"no route":        {Target: "/none", Authorization: "Bearer " + key},
		"no method":       {Method: "PUT", Target: "/a/1", Authorization: "Bearer " + key},
		"scope":           {Target: "/a/1", Authorization: "Bearer " + reader},
		"limited":         {Target: "/little", Authorization: "Bearer " + key},
		"two credentials": {Target: "/a/1?api_key&api_key", Authorization: "Bearer " + key},
	} {
		if req.Method == "" {
			req.Method = "GET"
		}
		if req.Host == "" {
			req.Host = "a.example"
		}
		req.Authorizations = min(1, len(req.Authorization))
		h.decide(req)
		v := h.decide(req)
		if n := testing.AllocsPerRun(200, func() {
			h.clock.Advance(time.Microsecond)
			h.admit.Decide(&req, v)
			v.AppendTarget(room)
			v.AppendFields(room)
		}); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

// BenchmarkDecideToken compares decisions with keys and with remembered tokens, on one gateway whose routes take either: groups
// of 64 calls in turn, so that other work of the machine slows both. It reports the tenth percentile of each kind of group, and
// the difference.
func BenchmarkDecideToken(b *testing.B) {
	h := newHarness(b)
	s := h.issuer("login", nil)
	limit := config(b, "1000000000/s", "1000000000/s", "", "")
	h.gateway(func(g *gateway.Gateway) { g.Requests.Issuers, g.GlobalLimit = []string{"login"}, limit }, withAuth(limited(route("/users/{id}", "GET"), limit), gateway.AuthAny))
	var requests [2][]Request
	for i := range 64 {
		_, key := h.key(nil)
		for kind, secret := range []string{key, s.token(map[string]any{"sub": fmt.Sprint(i)})} {
			requests[kind] = append(requests[kind], Request{Method: "GET", Target: "/users/17", Host: "a.example", Authorization: "Bearer " + secret, Authorizations: 1})
			if v := h.decide(requests[kind][i]); v.Action != Forward {
				b.Fatal(v.Fault())
			}
		}
	}
	(&gitHub{harness: h}).useRealClock()
	b.ReportAllocs()
	var v Verdict
	var took [2][]float64
	for b.Loop() {
		for kind := range requests {
			began := time.Now()
			for i := range requests[kind] {
				if h.admit.Decide(&requests[kind][i], &v); v.Action != Forward {
					b.Fatal(v.Fault())
				}
			}
			took[kind] = append(took[kind], float64(time.Since(began))/64)
		}
	}
	for kind := range took {
		slices.Sort(took[kind])
	}
	key, token := took[0][len(took[0])/10], took[1][len(took[1])/10]
	b.ReportMetric(key, "key-ns")
	b.ReportMetric(token, "token-ns")
	b.ReportMetric(token-key, "more-ns")
}
