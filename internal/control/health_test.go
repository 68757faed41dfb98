package control_test

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// checksBy returns checks by a path with the headers.
func checksBy(headers map[string]string) control.Optional[gateway.Health] {
	h := gateway.DefaultHealth()
	h.Path, h.Headers = "/healthz", headers
	return value(h.WithDefaults())
}

// probeHeader returns the header of the checks of an upstream in clear; "" if there is none.
func (u *upstreams) probeHeader(name string) string {
	u.tb.Helper()
	plain, err := u.box.Open(u.now().UpstreamNamed(name).Health.SealedHeaders()["X-Probe"])
	if err != nil {
		return ""
	}
	return string(plain)
}

func (u *upstreams) patchHealth(name string, h control.Optional[gateway.Health], more func(*gateway.UpstreamPatch)) error {
	p := gateway.UpstreamPatch{Name: name}
	if p.Health = h; more != nil {
		more(&p)
	}
	return second(u.PatchUpstream(ctx(), u.caller, u.id, p, nil))
}

func (u *upstreams) push(text string) error {
	return second(u.PushConfiguration(ctx(), u.caller, u.id, []byte(text), false, nil))
}

// Guarantee: targets.md 1, the headers of checks are sealed and for the service that they were given for, as all secrets of an upstream:
// what adds an origin, or changes host, ca or the scheme, gives them again or is 422. A change of the checks without headers keeps them, as
// long as the checks send any; a replaced upstream, or null, has none. The audit log has no value.
func TestHeadersOfChecksStayWithTheService(t *testing.T) {
	probe := map[string]string{"X-Probe": "s3cret"}
	u := newUpstreams(t)
	next := upstreamPatch("next", "https://a", "https://b")
	next.Health = checksBy(probe)
	u.put(next)
	u.wantDiff(func() error { return u.patchHealth("next", checksBy(map[string]string{"X-Probe": "other"}), nil) }, "upstream.update", "upstream", map[string]string{
		"upstreams.next.health": "map[headers:map[X-Probe:***] healthy:2 interval:10s path:/healthz statuses:200-399 timeout:2s unhealthy:2] -> map[headers:map[X-Probe:***] healthy:2 interval:10s path:/healthz statuses:200-399 timeout:2s unhealthy:2]",
	})
	adds := func(p *gateway.UpstreamPatch) { p.Targets = value(targetsAt("https://a", "https://c")) }
	for _, more := range []func(*gateway.UpstreamPatch){
		adds,
		func(p *gateway.UpstreamPatch) { p.Targets = value(targetsAt("h2c://a")) },
		func(p *gateway.UpstreamPatch) { p.UpstreamHost = value("orders.internal") },
	} {
		for _, h := range []control.Optional[gateway.Health]{{}, checksBy(nil)} {
			u.wantRefused(func() error { return u.patchHealth("next", h, more) }, fault.ValidationFailed, "health.headers")
		}
	}
	u.wantRefused(func() error { return u.add("next", "https://c") }, fault.ValidationFailed, "health.headers")
	u.wantRefused(func() error {
		return u.push("gateway: {upstreams: [{name: next, host: orders.internal, health: {path: /}}]}\nroutes: []\n")
	}, fault.ValidationFailed, "gateway.upstreams[0].health.headers")
	u.wantRefused(func() error {
		return u.push("gateway: {upstreams: [{name: next, host: orders.internal, health: {path: /, headers: {X-Probe: '***'}}}]}\nroutes: []\n")
	}, fault.ValidationFailed, "gateway.upstreams[0].health.headers.X-Probe")
	if got := u.probeHeader("next"); got != "other" {
		t.Fatalf("got the header %q, want the one that was given last", got)
	}

	// Changes that lead nowhere else keep them.
	u.must(u.patchHealth("next", checksBy(nil), func(p *gateway.UpstreamPatch) { p.Targets = value(targetsAt("https://b/x")) }))
	u.must(u.push("gateway: {upstreams: [{name: next, health: {grpc: ''}}]}\nroutes: []\n"))
	u.must(u.push("gateway: {upstreams: [{name: next, health: {path: /, headers: {X-Probe: '***'}}}]}\nroutes: []\n"))
	if got := u.probeHeader("next"); got != "other" {
		t.Errorf("got the header %q, want it kept", got)
	}
	// With a certificate for host, targets come and go.
	u.must(u.patchHealth("next", checksBy(probe), func(p *gateway.UpstreamPatch) { p.UpstreamHost = value("orders.internal") }))
	u.must(u.add("next", "https://d"))
	u.must(second(u.AddTarget(ctx(), u.caller, u.id, "next", control.NewTarget{Target: gateway.Target{URL: "https://e"}, HealthHeaders: value(map[string]string{"X-Probe": "again"})}, nil)))
	if got := u.probeHeader("next"); got != "again" {
		t.Errorf("got the header %q, want the one of the new target", got)
	}

	// They are removed with the checks that send them, and by a file or a call that says so.
	tcp := gateway.DefaultHealth()
	tcp.TCP = true
	for name, remove := range map[string]func() error{
		"tcp":        func() error { return u.patchHealth("next", value(tcp), nil) },
		"null":       func() error { return u.patchHealth("next", null[gateway.Health](), nil) },
		"no headers": func() error { return u.patchHealth("next", checksBy(map[string]string{}), nil) },
		"a file": func() error {
			return u.push("gateway: {upstreams: [{name: next, health: {path: /, headers: null}}]}\nroutes: []\n")
		},
		"PUT": func() error {
			p := upstreamPatch("next")
			p.Health = checksBy(nil)
			return second(u.PutUpstream(ctx(), u.caller, u.id, p, nil))
		},
	} {
		u.must(u.patchHealth("next", checksBy(probe), nil))
		if u.must(remove()); u.now().UpstreamNamed("next").HasSecrets() {
			t.Errorf("%s: the headers of checks are left", name)
		}
	}

	// The only target of the default upstream takes its secrets with it.
	u.must(u.patchHealth("default", checksBy(probe), nil))
	u.must(u.patchHealth("default", control.Optional[gateway.Health]{}, func(p *gateway.UpstreamPatch) { p.Targets = value(targetsAt("https://elsewhere")) }))
	if g := u.now(); g.Upstream.HasSecrets() || g.Upstream.Health == nil || g.Upstream.Health.Path != "/healthz" {
		t.Errorf("got the checks %+v, want them without headers", g.Upstream.Health)
	}
}

// Guarantee: a file with checks is exported without the values of headers, changes nothing when it is applied again, and a rollback to it
// keeps the headers for the same service and warns of others.
func TestFilesWithChecks(t *testing.T) {
	const text = "gateway:\n  upstreams:\n    - {name: next, targets: [{url: https://a}], health: {path: /healthz, headers: {X-Probe: s3cret}}}\nroutes: []\n"
	u := newUpstreams(t)
	u.must(u.push(text))
	first := u.now().Revision
	u.wantNoRecords(u.caller.Account.ID, func() { u.must(u.push(text)) })
	exported := string(must[[]byte](u.harness)(u.Configuration(ctx(), u.caller, u.id)))
	if !strings.Contains(exported, `health: {path: /healthz, interval: 10s, timeout: 2s, unhealthy: 2, healthy: 2, statuses: "200-399", headers: {X-Probe: "***"}}`) || strings.Contains(exported, "s3cret") {
		t.Errorf("got the export\n%s", exported)
	}
	u.wantNoRecords(u.caller.Account.ID, func() { u.must(u.push(exported)) })

	u.must(u.patchHealth("next", null[gateway.Health](), nil))
	u.must(u.push("gateway: {upstreams: [{name: next, targets: [{url: https://b}]}]}\nroutes: []\n"))
	got := must[*control.PushResult](u.harness)(u.Rollback(ctx(), u.caller, u.id, first, false, nil))
	if h := u.now().UpstreamNamed("next").Health; h == nil || h.Path != "/healthz" || len(h.Sealed) > 0 || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "upstreams.next.health.headers.X-Probe was not restored") {
		t.Errorf("got the checks %+v and the warnings %q, want checks without headers, and a warning of that", h, got.Warnings)
	}
	u.must(u.patchHealth("next", checksBy(map[string]string{"X-Probe": "again"}), nil))
	u.must(u.push("gateway: {upstreams: [{name: next, timeout: 5s}]}\nroutes: []\n"))
	got = must[*control.PushResult](u.harness)(u.Rollback(ctx(), u.caller, u.id, first, false, nil))
	if u.probeHeader("next") != "again" || len(got.Warnings) > 0 {
		t.Errorf("got the header %q and the warnings %q, want it kept for the same service", u.probeHeader("next"), got.Warnings)
	}
}
