package control_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

func token(s string) control.Optional[map[string]string] {
	return value(map[string]string{"X-Token": s})
}

// secretWay is a way to change an upstream with secrets. upstream is "" for any.
type secretWay struct {
	name string
	// call makes the change; given has what the call gives of secrets.
	call func(u *upstreams, name string, given gateway.Patch) error
	// adds is set if the change adds an origin, other if it changes host or ca, and one if it leaves one target.
	adds, other, one bool
}

func secretWays(ca string) []secretWay {
	patch := func(set func(p *gateway.UpstreamPatch)) func(u *upstreams, name string, given gateway.Patch) error {
		return func(u *upstreams, name string, given gateway.Patch) error {
			p := gateway.UpstreamPatch{Name: name, Patch: given}
			set(&p)
			return second(u.PatchUpstream(ctx(), u.caller, u.id, p, nil))
		}
	}
	file := func(change string) func(u *upstreams, name string, given gateway.Patch) error {
		return func(u *upstreams, name string, given gateway.Patch) error {
			entry := change
			if h := given.UpstreamHeaders; h.Null {
				entry += ", headers: null"
			} else if h.Present {
				entry += ", headers: {X-Token: " + h.Value["X-Token"] + "}"
			}
			if given.UpstreamClientKey.Present {
				entry += fmt.Sprintf(", client_key: %q", given.UpstreamClientKey.Value)
			}
			return second(u.PushConfiguration(ctx(), u.caller, u.id, []byte("gateway: {upstreams: [{name: "+name+entry+"}]}\nroutes: []\n"), false, nil))
		}
	}
	return []secretWay{
		{"PATCH of the targets", patch(func(p *gateway.UpstreamPatch) { p.Targets = value(targetsAt("https://a", "https://c")) }), true, false, false},
		{"PATCH to another scheme", patch(func(p *gateway.UpstreamPatch) { p.Targets = value(targetsAt("h2c://a", "h2c://b")) }), true, true, false},
		{"PATCH of host", patch(func(p *gateway.UpstreamPatch) { p.UpstreamHost = value("other.example") }), false, true, false},
		{"PATCH of host to null", patch(func(p *gateway.UpstreamPatch) { p.UpstreamHost = value("preserve") }), false, true, false},
		{"PATCH of ca", patch(func(p *gateway.UpstreamPatch) { p.UpstreamCA = value(ca) }), false, true, false},
		{"POST of a target", func(u *upstreams, name string, given gateway.Patch) error {
			in := control.NewTarget{Target: gateway.Target{URL: "https://c"}, Headers: given.UpstreamHeaders, ClientKey: given.UpstreamClientKey}
			return second(u.AddTarget(ctx(), u.caller, u.id, name, in, nil))
		}, true, false, false},
		{"targets of a file", file(", targets: [{url: https://a}, {url: https://c}]"), true, false, false},
		{"host of a file", file(", host: other.example"), false, true, false},
		{"PATCH of what does not matter", patch(func(p *gateway.UpstreamPatch) {
			p.Timeout, p.Targets = value("3s"), value([]gateway.Target{{URL: "https://b/x", Drain: true}, {URL: "https://A:443", Weight: 7}})
		}), false, false, false},
		{"DELETE of the first target", func(u *upstreams, name string, given gateway.Patch) error {
			return second(u.DeleteTarget(ctx(), u.caller, u.id, name, "https://a", nil))
		}, false, false, true},
		{"PATCH to one of the targets", patch(func(p *gateway.UpstreamPatch) { p.Targets = value(targetsAt("https://b/path")) }), false, false, true},
		{"PATCH to one other target", patch(func(p *gateway.UpstreamPatch) { p.Targets = value(targetsAt("https://c")) }), true, false, true},
		{"one target of a file", file(", targets: [{url: https://b}]"), false, false, true},
		{"one other target of a file", file(", targets: [{url: https://c, weight: 2}]"), true, false, true},
		{"PATCH of a target", func(u *upstreams, name string, given gateway.Patch) error {
			return second(u.PatchTarget(ctx(), u.caller, u.id, name, "https://a", control.TargetPatch{Backup: value(true)}, nil))
		}, false, false, false},
		{"a file that keeps", file(", max_connections: 3"), false, false, false},
	}
}

// withSecrets makes an upstream with two targets, headers and a client certificate.
func (u *upstreams) withSecrets(name, host string, pair certificatetest.Pair) {
	u.tb.Helper()
	p := upstreamPatch(name, "https://a", "https://b")
	p.UpstreamHeaders, p.UpstreamClientCertificate, p.UpstreamClientKey, p.UpstreamHost = token("s3cret"), value(string(pair.Cert)), value(string(pair.Key)), value(host)
	u.put(p)
}

func (u *upstreams) token(name string) string {
	u.tb.Helper()
	plain, err := u.box.Open(u.now().UpstreamNamed(name).Headers["X-Token"])
	if err != nil {
		return ""
	}
	return string(plain)
}

// Guarantee: targets.md 1, an upstream with several targets, or with a name, keeps its secrets only for the service that they
// were given for: what targets prove with a certificate for host, or else the set of origins. The only target of the default
// upstream proves the name in its URL instead, so a change to it is one of the service. In any other case a change gives
// them again, or removes them, or is 422.
func TestSecretsStayWithTheService(t *testing.T) {
	pair := certificatetest.New(t, "client")
	ca := string(certificatetest.New(t, "ca").Cert)
	for _, name := range []string{"next", "default"} {
		for _, host := range []string{"target", "service.example"} {
			for _, way := range secretWays(ca) {
				t.Run(name+", "+host+", "+way.name, func(t *testing.T) {
					u := newUpstreams(t)
					u.withSecrets(name, host, pair)
					refused := way.other || way.adds && host == "target" || way.one && name == "default" && host != "target"
					if refused {
						u.wantRefused(func() error { return way.call(u, name, gateway.Patch{}) }, fault.ValidationFailed, secretField(way.name, "headers"))
						if strings.HasPrefix(way.name, "DELETE") {
							return // has no fields
						}
						u.wantRefused(func() error { return way.call(u, name, gateway.Patch{UpstreamHeaders: token("new")}) }, fault.ValidationFailed, secretField(way.name, "client_key"))
						given := gateway.Patch{UpstreamHeaders: token("new"), UpstreamClientKey: value(string(pair.Key))}
						if strings.Contains(way.name, "scheme") {
							return // a client certificate needs https
						}
						u.must(way.call(u, name, given))
						if got := u.token(name); got != "new" {
							t.Errorf("got the token %q; want the one that was given", got)
						}
						return
					}
					u.must(way.call(u, name, gateway.Patch{}))
					if got := u.token(name); got != "s3cret" || len(u.now().UpstreamNamed(name).TLS.ClientKey) == 0 {
						t.Errorf("got the token %q; want it and the client key kept", got)
					}
				})
			}
		}
	}
}

// secretField returns the field of a secret that is missing.
func secretField(way, field string) string {
	if strings.Contains(way, "file") {
		return "gateway.upstreams[0]." + field
	}
	return field
}

// Guarantee: the same holds for the settings of the gateway that are those of its default upstream. With one target, contract
// 3.3 stays: another origin drops the secrets, host and ca do not; but then a certificate proves no other target.
func TestSecretsOfTheDefaultUpstream(t *testing.T) {
	pair := certificatetest.New(t, "client")
	ca := string(pair.Cert)
	patch := func(u *upstreams, p gateway.Patch) error {
		return second(u.UpdateGateway(ctx(), u.caller, u.id, p, nil))
	}
	t.Run("several", func(t *testing.T) {
		u := newUpstreams(t)
		u.withSecrets("default", "service.example", pair)
		for _, p := range []gateway.Patch{{UpstreamHost: value("other.example")}, {UpstreamCA: value(ca)}} {
			u.wantRefused(func() error { return patch(u, p) }, fault.ValidationFailed, "upstream_headers")
			p.UpstreamHeaders = null[map[string]string]()
			u.wantRefused(func() error { return patch(u, p) }, fault.ValidationFailed, "upstream_client_key")
		}
		u.must(patch(u, gateway.Patch{UpstreamHost: value("other.example"), UpstreamHeaders: token("new"), UpstreamClientCertificate: null[string](), UpstreamClientKey: null[string]()}))
		u.must(patch(u, gateway.Patch{Timeout: value("3s")}))
		if got := u.token("default"); got != "new" {
			t.Errorf("got the token %q; want the new one", got)
		}
		// One target is left: its certificate is for its own name, so the secrets are given for it.
		u.wantRefused(func() error { return second(u.DeleteTarget(ctx(), u.caller, u.id, "default", "https://a", nil)) }, fault.ValidationFailed, "headers")
		one := upstreamPatch("default", "https://b")
		u.wantRefused(func() error { return second(u.PatchUpstream(ctx(), u.caller, u.id, one, nil)) }, fault.ValidationFailed, "headers")
		one.UpstreamHeaders = token("for b")
		u.must(second(u.PatchUpstream(ctx(), u.caller, u.id, one, nil)))
		if got := u.token("default"); got != "for b" || u.now().Upstream.URL != "https://b" {
			t.Errorf("got the token %q of %s; want the one that was given", got, u.now().Upstream.URL)
		}
		u.must(patch(u, gateway.Patch{UpstreamURL: value("https://c")}))
		if got := u.token("default"); got != "" {
			t.Errorf("got the token %q at another origin; want none", got)
		}
	})
	t.Run("one target", func(t *testing.T) {
		u := newUpstreams(t)
		u.must(patch(u, gateway.Patch{UpstreamURL: value("https://a"), UpstreamHost: value("service.example"), UpstreamHeaders: token("s3cret")}))
		u.must(second(u.PatchUpstream(ctx(), u.caller, u.id, upstreamPatch("default", "https://a/path"), nil)))
		// Its certificate was for the name in its URL, so another target has not proved that it is the same service.
		u.wantRefused(func() error { return u.add("default", "https://b") }, fault.ValidationFailed, "headers")
		u.must(u.add("default", "https://a/other"))
		if got := u.token("default"); got != "s3cret" {
			t.Errorf("got the token %q; want it kept: the origin is the same", got)
		}
		u.wantRefused(func() error { return u.add("default", "https://b") }, fault.ValidationFailed, "headers")
		u.must(second(u.DeleteTarget(ctx(), u.caller, u.id, "default", "https://a/other", nil)))
		u.must(patch(u, gateway.Patch{UpstreamHost: value("other.example")}))
		if got := u.token("default"); got != "s3cret" {
			t.Errorf("got the token %q; want it kept: the origin is the same", got)
		}
		u.wantRefused(func() error { return u.add("default", "https://b") }, fault.ValidationFailed, "headers")
		in := control.NewTarget{Target: gateway.Target{URL: "https://b"}, Headers: token("for other.example")}
		u.must(second(u.AddTarget(ctx(), u.caller, u.id, "default", in, nil)))
		u.must(u.add("default", "https://c"))
		// A foreign target among them gets nothing by being the last one.
		u.must(second(u.DeleteTarget(ctx(), u.caller, u.id, "default", "https://b", nil)))
		u.wantRefused(func() error {
			return second(u.DeleteTarget(ctx(), u.caller, u.id, "default", "https://a/path", nil))
		}, fault.ValidationFailed, "headers")
		one := upstreamPatch("default", "https://a")
		one.UpstreamHeaders = token("for a")
		u.must(second(u.PatchUpstream(ctx(), u.caller, u.id, one, nil)))
		u.must(second(u.PatchUpstream(ctx(), u.caller, u.id, upstreamPatch("default", "https://c"), nil)))
		if got := u.token("default"); got != "" {
			t.Errorf("got the token %q at another origin; want none", got)
		}
	})
}

// Guarantee: a rollback from several targets of the default upstream to one keeps no secret that was given for host: the
// only target proves the name in its URL.
func TestRollbackToOneTarget(t *testing.T) {
	u := newUpstreams(t)
	apply := func(text string) {
		t.Helper()
		u.must(second(u.PushConfiguration(ctx(), u.caller, u.id, []byte(text), false, nil)))
	}
	apply("gateway: {upstreams: [{name: default, host: service.example, targets: [{url: https://b}]}]}\nroutes: []\n")
	number := u.now().Revision
	apply("gateway: {upstreams: [{name: default, host: service.example, headers: {X-Token: s3cret}, targets: [{url: https://a}, {url: https://b}]}]}\nroutes: []\n")
	got := must[*control.PushResult](u.harness)(u.Rollback(ctx(), u.caller, u.id, number, false, nil))
	if g := u.now(); g.Upstream.URL != "https://b" || g.Upstream.HasSecrets() || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "headers were not restored") {
		t.Errorf("got %+v and the warnings %q; want the target without the token, and a warning", g.Upstream, got.Warnings)
	}
}

// Guarantee: a rollback of a file restores its upstreams. It restores no secrets, and keeps those of upstreams that are for the
// same service, with a warning for each of the others.
func TestRollbackRestoresUpstreams(t *testing.T) {
	u := newUpstreams(t)
	apply := func(text string) {
		t.Helper()
		must[*control.PushResult](u.harness)(u.PushConfiguration(ctx(), u.caller, u.id, []byte(text), false, nil))
	}
	apply(`gateway:
  upstreams:
    - {name: gone, targets: [{url: https://a}], headers: {X-Token: one}}
    - {name: moved, targets: [{url: https://b}], headers: {X-Token: two}}
    - {name: same, targets: [{url: https://c}], timeout: 5s, headers: {X-Token: three, X-More: four}}
    - {name: bare, targets: [{url: https://d}]}
routes: [{path: /a, methods: [GET], upstream: gone}]
`)
	apply(`gateway:
  upstreams:
    - {name: moved, targets: [{url: https://b2}], headers: {X-Token: five}}
    - {name: same, targets: [{url: https://c}], timeout: 6s, headers: {X-Token: six}}
    - {name: bare, targets: [{url: https://d2}], headers: {X-Token: seven}}
routes: []
`)
	got := must[*control.PushResult](u.harness)(u.Rollback(ctx(), u.caller, u.id, 1, false, nil))
	if u.token("same") != "six" || u.token("gone") != "" || u.token("moved") != "" || u.token("bare") != "" || u.now().UpstreamNamed("same").Timeout != "5s" || u.now().UpstreamNamed("moved").URL != "https://b" {
		t.Errorf("got the upstreams %+v", u.now().Others)
	}
	for i, want := range []string{"upstreams.gone.headers.X-Token was not restored", "upstreams.moved.headers.X-Token was not restored", "upstreams.same.headers.X-More was not restored", "upstreams.bare.headers were not restored"} {
		if len(got.Warnings) != 4 || !strings.Contains(got.Warnings[i], want) {
			t.Fatalf("got the warnings %q; want %q at %d", got.Warnings, want, i)
		}
	}

	// A file with upstream_url does not move the targets that there are now.
	apply("gateway: {upstream_url: https://first, timeout: 4s}\nroutes: []\n")
	number := u.now().Revision
	u.must(u.add("default", "https://second"))
	apply("gateway: {timeout: 5s}\nroutes: []\n")
	apply("gateway: {upstreams: [{name: default, targets: [{url: https://x}, {url: https://y}]}]}\nroutes: []\n")
	got = must[*control.PushResult](u.harness)(u.Rollback(ctx(), u.caller, u.id, number, false, nil))
	if g := u.now(); g.Timeout != "4s" || len(g.Upstream.Targets) != 2 || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "upstream_url was not restored") {
		t.Errorf("got %+v and the warnings %q", g, got.Warnings)
	}
}

// exposure is what a model knows of the secret of an upstream: where it could be sent to when it was given. By the rule of
// the data plane, that is whoever proves to be host by the authorities of ca, or else the origins of the targets.
type exposure struct {
	origins  []string
	host, ca string
	proves   bool
}

func exposed(u *gateway.Upstream) exposure {
	// The only target of the default upstream proves the name in its URL, whatever host is.
	e := exposure{host: u.Host, ca: u.TLS.CA, proves: u.Host != "" && u.Host != gateway.PreserveHost && (u.Name != "" || len(u.AllTargets()) > 1)}
	for _, t := range u.AllTargets() {
		parsed, _ := gateway.ParseUpstreamURL(t.URL)
		e.origins, e.proves = append(e.origins, parsed.Origin()), e.proves && parsed.Scheme == "https"
	}
	return e
}

// Guarantee: whatever is called in whatever order, a secret is sent only to origins that it was given for, and to those that
// prove with a certificate that they are the service that it was given for.
func TestSecretsAreNeverSentElsewhere(t *testing.T) {
	ca := string(certificatetest.New(t, "ca").Cert)
	path := sqlitetest.Path(t)
	h := openHarness(t, path)
	t.Cleanup(h.close)
	accounts := 0
	rapid.Check(t, func(t *rapid.T) {
		h.tb = t
		accounts++
		c := h.caller(fmt.Sprint("acme", accounts), "admin")
		u := &upstreams{h, c, h.gateway(c).ID}
		u.put(upstreamPatch("next", "https://a"))
		known := map[string]*exposure{}
		if rapid.Bool().Draw(t, "default has several targets") {
			p := upstreamPatch("default", "https://a", "https://b")
			p.UpstreamHost, p.UpstreamHeaders = value("one.example"), token("first")
			u.put(p)
			known["default"] = new(exposed(&u.now().Upstream))
		}
		urls := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"https://a", "https://b", "https://c/x"}), 1, 3, rapid.ID)
		for i := range rapid.IntRange(1, 12).Draw(t, "calls") {
			name := rapid.SampledFrom([]string{"default", "next"}).Draw(t, "upstream")
			given := rapid.IntRange(0, 2).Draw(t, "gives a secret") == 0
			p := gateway.UpstreamPatch{Name: name}
			if given {
				p.UpstreamHeaders = token(fmt.Sprint("secret ", i))
			}
			before := u.now()
			err := u.randomCall(t, &p, ca, urls)
			if code := fault.CodeOf(err); err != nil && code != fault.ValidationFailed && code != fault.Conflict && code != fault.NotFound {
				t.Fatal(err)
			}
			now := u.now()
			for after := range now.AllUpstreams {
				name := after.FullName()
				switch was := before.UpstreamNamed(name); {
				case len(after.Headers) == 0:
					delete(known, name)
				case was == nil || !bytes.Equal(after.Headers["X-Token"], was.Headers["X-Token"]):
					known[name] = new(exposed(after))
				default:
					known[name].follow(t, after)
				}
			}
		}
	})
}

// follow fails unless after, which has the secret still, sends it to what it was given for.
func (e *exposure) follow(t *rapid.T, after *gateway.Upstream) {
	now := exposed(after)
	same := e.proves && now.proves && now.host == e.host && now.ca == e.ca
	known := !e.proves && !slices.ContainsFunc(now.origins, func(origin string) bool { return !slices.Contains(e.origins, origin) })
	if !same && !known {
		t.Fatalf("the secret of %s, given for %+v, can be sent to %+v now", after.FullName(), *e, now)
	}
}

// randomCall changes the upstream p.Name in one of the ways that there are. The secret that p has, if any, is given.
func (u *upstreams) randomCall(t *rapid.T, p *gateway.UpstreamPatch, ca string, urls *rapid.Generator[[]string]) error {
	where := func() {
		if rapid.Bool().Draw(t, "targets") {
			p.Targets = value(targetsAt(urls.Draw(t, "urls")...))
			if rapid.IntRange(0, 4).Draw(t, "http") == 0 {
				for i := range p.Targets.Value {
					p.Targets.Value[i].URL = strings.Replace(p.Targets.Value[i].URL, "https", "http", 1)
				}
			}
		}
		if rapid.Bool().Draw(t, "host") {
			p.UpstreamHost = value(rapid.SampledFrom([]string{"target", "preserve", "one.example", "two.example"}).Draw(t, "its host"))
		}
		if rapid.IntRange(0, 3).Draw(t, "ca") == 0 {
			p.UpstreamCA = rapid.SampledFrom([]control.Optional[string]{null[string](), value(ca)}).Draw(t, "its ca")
		}
	}
	switch rapid.IntRange(0, 6).Draw(t, "way") {
	case 0:
		where()
		return second(u.PutUpstream(ctx(), u.caller, u.id, *p, nil))
	case 1, 2:
		where()
		return second(u.PatchUpstream(ctx(), u.caller, u.id, *p, nil))
	case 3:
		in := control.NewTarget{Target: gateway.Target{URL: urls.Draw(t, "added")[0]}, Headers: p.UpstreamHeaders}
		return second(u.AddTarget(ctx(), u.caller, u.id, p.Name, in, nil))
	case 4:
		return second(u.DeleteTarget(ctx(), u.caller, u.id, p.Name, urls.Draw(t, "removed")[0], nil))
	case 5:
		where()
		g := p.Patch
		g.UpstreamOnly = gateway.UpstreamOnly{}
		if list := p.Targets.Value; len(list) > 0 {
			g.UpstreamURL = value(list[0].URL)
		}
		p.Name = "default"
		return second(u.UpdateGateway(ctx(), u.caller, u.id, g, nil))
	default:
		where()
		if !p.UpstreamHeaders.Present && rapid.Bool().Draw(t, "***") {
			p.UpstreamHeaders = token("***")
		}
		document := gateway.Document{Gateway: gateway.Patch{Upstreams: value([]gateway.UpstreamPatch{{Name: "next"}})}}
		if list := &document.Gateway.Upstreams; p.Name == "next" {
			list.Value[0] = *p
		} else {
			list.Value = append(list.Value, *p)
		}
		return second(u.PushConfiguration(ctx(), u.caller, u.id, document.Encode(), false, nil))
	}
}

// Guarantee: targets.md 1, settings of the gateway that are given beside an entry default of the list of upstreams are applied
// with it: secrets that a call gives in either of them are for the targets that it gives, and the names of fields in errors
// are those that were given.
func TestSettingsBesideADefaultEntry(t *testing.T) {
	pair := certificatetest.New(t, "client")
	u := newUpstreams(t)
	entry := func(urls ...string) control.Optional[[]gateway.UpstreamPatch] {
		return value([]gateway.UpstreamPatch{upstreamPatch("default", urls...)})
	}
	give := func(p gateway.Patch) gateway.Patch {
		p.UpstreamHeaders, p.UpstreamClientCertificate, p.UpstreamClientKey, p.UpstreamCA = token("s3cret"), value(string(pair.Cert)), value(string(pair.Key)), value(string(pair.Cert))
		p.Timeout, p.UpstreamHost = value("7s"), value("service.example")
		return p
	}
	check := func(what, want string, g *gateway.Gateway) {
		t.Helper()
		u.id = g.ID
		if got := u.token("default"); got != want || len(g.Upstream.TLS.ClientKey) == 0 || g.Upstream.TLS.CA == "" || g.Timeout != "7s" || g.Upstream.Host != "service.example" {
			t.Errorf("%s: got the token %q of %+v; want %q and all that was given", what, got, g.Upstream, want)
		}
	}
	for _, urls := range [][]string{{"https://a"}, {"https://a", "https://b"}} {
		p := give(gateway.Patch{Name: value("orders")})
		p.Upstreams = entry(urls...)
		made := must[*gateway.Gateway](u.harness)(u.CreateGateway(ctx(), u.caller, p, ""))
		check("POST", "s3cret", made)

		document := gateway.Document{Gateway: gateway.Patch{Name: value("orders"), Upstreams: entry(urls...)}}
		given := control.NewGateway{Settings: give(gateway.Patch{}), Config: string(document.Encode())}
		given.AllowDuplicate = true
		check("POST with a file", "s3cret", must[*gateway.Gateway](u.harness)(u.CreateGatewayFrom(ctx(), u.caller, given)))
		document.Gateway = give(document.Gateway)
		given.Settings, given.Config = gateway.Patch{}, string(document.Encode())
		check("file", "s3cret", must[*gateway.Gateway](u.harness)(u.CreateGatewayFrom(ctx(), u.caller, given)))

		// A file moves the gateway and gives the secrets again; without them, it is refused or drops them as ever.
		moved := gateway.Document{Gateway: give(gateway.Patch{Upstreams: entry("https://c", "https://d")})}
		moved.Gateway.UpstreamHeaders = token("new")
		u.id = made.ID
		u.must(second(u.PushConfiguration(ctx(), u.caller, made.ID, moved.Encode(), false, nil)))
		check("PUT of a file", "new", u.now())
		moved.Gateway.UpstreamHeaders, moved.Gateway.Upstreams = token("***"), entry("https://e")
		u.wantRefused(func() error {
			return second(u.PushConfiguration(ctx(), u.caller, made.ID, moved.Encode(), false, nil))
		}, fault.ValidationFailed, "gateway.upstream_headers.X-Token")
		moved.Gateway.UpstreamHeaders = token("of e")
		u.must(second(u.PushConfiguration(ctx(), u.caller, made.ID, moved.Encode(), false, nil)))
		check("PUT of a file with one target", "of e", u.now())
	}
	wrong := gateway.Patch{Name: value("wrong"), UpstreamCA: value(string(pair.Cert)), UpstreamHeaders: value(map[string]string{"Host": "x"}), Upstreams: entry("http://a")}
	_, err := u.CreateGateway(ctx(), u.caller, wrong, "")
	u.wantCode(err, fault.ValidationFailed, "upstream_headers.Host")
	wrong.UpstreamHeaders = control.Optional[map[string]string]{}
	_, err = u.CreateGateway(ctx(), u.caller, wrong, "")
	u.wantCode(err, fault.ValidationFailed, "upstream_ca")
}

// Guarantee: a rollback of a file that kept the targets of an upstream restores the rest if the upstream is gone, with a warning.
func TestRollbackWithoutTargets(t *testing.T) {
	u := newUpstreams(t)
	u.put(upstreamPatch("next", "https://a"))
	u.must(second(u.PushConfiguration(ctx(), u.caller, u.id, []byte("gateway: {timeout: 4s, upstreams: [{name: next, timeout: 5s}]}\nroutes: []\n"), false, nil)))
	number := u.now().Revision
	u.must(second(u.DeleteUpstream(ctx(), u.caller, u.id, "next", nil)))
	u.must(second(u.UpdateGateway(ctx(), u.caller, u.id, gateway.Patch{Timeout: value("9s")}, nil)))
	got := must[*control.PushResult](u.harness)(u.Rollback(ctx(), u.caller, u.id, number, false, nil))
	if g := u.now(); g.Timeout != "4s" || len(g.Others) != 0 || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "upstreams.next was not restored") {
		t.Errorf("got %+v and the warnings %q", g, got.Warnings)
	}
}

// Guarantee: the export of a gateway with several targets and upstreams creates an equal one, once its secrets are given.
func TestExportCreatesAnEqualGateway(t *testing.T) {
	pair := certificatetest.New(t, "client")
	for _, host := range []string{"target", "service.example"} {
		u := newUpstreams(t)
		u.withSecrets("default", host, pair)
		u.withSecrets("next", host, pair)
		was := gateway.Export(u.now(), nil).Encode()
		document, err := gateway.ParseDocument(was)
		u.must(err)
		p := &document.Gateway
		p.Name, p.Default = value("another"), control.Optional[bool]{}
		p.UpstreamHeaders, p.UpstreamClientKey = token("s3cret"), value(string(pair.Key))
		for i := range p.Upstreams.Value {
			if entry := &p.Upstreams.Value[i]; entry.Name == "next" {
				entry.UpstreamHeaders, entry.UpstreamClientKey = token("s3cret"), value(string(pair.Key))
			}
		}
		made := must[*gateway.Gateway](u.harness)(u.CreateGatewayFrom(ctx(), u.caller, control.NewGateway{Config: string(document.Encode())}))
		again := gateway.Export(made, nil)
		again.Gateway.Name, again.Gateway.Default = value(u.now().Name), value(u.now().Default)
		if !u.now().Default {
			again.Gateway.Default = control.Optional[bool]{}
		}
		if got := again.Encode(); !bytes.Equal(got, was) {
			t.Errorf("got\n%s\nwant\n%s", got, was)
		}
		u.id = made.ID
		if u.token("default") != "s3cret" || u.token("next") != "s3cret" {
			t.Errorf("the tokens are %q and %q", u.token("default"), u.token("next"))
		}
	}
}

// Guarantee: a rollback of a file that has secrets at the gateway and targets in an entry default keeps them for the same
// service, and warns once of each that it cannot restore.
func TestRollbackOfSettingsBesideADefaultEntry(t *testing.T) {
	u := newUpstreams(t)
	apply := func(text string) int64 {
		t.Helper()
		u.must(second(u.PushConfiguration(ctx(), u.caller, u.id, []byte(text), false, nil)))
		return u.now().Revision
	}
	first := apply("gateway: {upstream_headers: {X-Token: one}, upstreams: [{name: default, targets: [{url: https://a}, {url: https://b}]}]}\nroutes: []\n")
	apply("gateway: {upstream_headers: {X-Token: two}, timeout: 5s}\nroutes: []\n")
	got := must[*control.PushResult](u.harness)(u.Rollback(ctx(), u.caller, u.id, first, false, nil))
	if u.token("default") != "two" || len(got.Warnings) != 0 {
		t.Errorf("got the token %q and the warnings %q; want it kept", u.token("default"), got.Warnings)
	}
	apply("gateway: {upstream_headers: {X-Token: three}, upstreams: [{name: default, targets: [{url: https://c}]}]}\nroutes: []\n")
	got = must[*control.PushResult](u.harness)(u.Rollback(ctx(), u.caller, u.id, first, false, nil))
	if u.token("default") != "" || len(u.now().Upstream.AllTargets()) != 2 || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "headers.X-Token was not restored") {
		t.Errorf("got %+v and the warnings %q; want the targets without the token, and one warning", u.now().Upstream, got.Warnings)
	}
}

// Guarantee: targets.md 1 and 5, the addresses of a name are the same origin. SRV records may name any host, so they are another one,
// and https needs a host that each of them proves: a target that gets or loses resolve srv needs the secrets again, unless both before and
// after a certificate proves the service.
func TestSecretsAndSRVRecords(t *testing.T) {
	resolved := func(u *upstreams, name string, r gateway.Resolve, given gateway.Patch) error {
		p := gateway.UpstreamPatch{Name: name, Patch: given}
		p.Targets = value(u.now().UpstreamNamed(name).AllTargets())
		p.Targets.Value = slices.Clone(p.Targets.Value)
		p.Targets.Value[0].Resolve = r
		return second(u.PatchUpstream(ctx(), u.caller, u.id, p, nil))
	}
	for _, c := range []struct {
		name, url, host string
		proves          bool // whatever the addresses
	}{
		{"next", "http://orders.internal", "target", false}, {"next", "https://orders.internal", "orders.example", true},
		{"default", "http://orders.internal", "target", false}, {"default", "https://orders.internal", "orders.example", false},
	} {
		t.Run(c.name+" "+c.url, func(t *testing.T) {
			u := newUpstreams(t)
			p := upstreamPatch(c.name, c.url)
			p.UpstreamHeaders, p.UpstreamHost = token("s3cret"), value(c.host)
			u.put(p)
			u.must(resolved(u, c.name, gateway.ResolveA, gateway.Patch{}))
			if got := u.token(c.name); got != "s3cret" {
				t.Errorf("with resolve a, got the token %q; want it kept", got)
			}
			for _, r := range []gateway.Resolve{gateway.ResolveSRV, gateway.ResolveNone} {
				if !c.proves {
					u.wantRefused(func() error { return resolved(u, c.name, r, gateway.Patch{}) }, fault.ValidationFailed, "headers")
					u.wantRefused(func() error {
						return second(u.PatchTarget(ctx(), u.caller, u.id, c.name, c.url, control.TargetPatch{Resolve: value(r)}, nil))
					}, fault.ValidationFailed, "headers")
					u.must(resolved(u, c.name, r, gateway.Patch{UpstreamHeaders: token("s3cret")}))
				} else {
					u.must(resolved(u, c.name, r, gateway.Patch{}))
				}
				if got := u.token(c.name); got != "s3cret" {
					t.Errorf("with resolve %s, got the token %q; want it kept", r, got)
				}
			}
		})
	}
}

// Guarantee: https with resolve srv has a host that each target proves, whichever call would end that; upstream_url of a gateway that
// has SRV records is their name.
func TestSRVRecordsOverHTTPSNeedAHost(t *testing.T) {
	u := newUpstreams(t)
	p := gateway.UpstreamPatch{Name: "default"}
	p.Targets = value([]gateway.Target{{URL: "https://orders.internal", Resolve: gateway.ResolveSRV}})
	u.wantRefused(func() error { return second(u.PatchUpstream(ctx(), u.caller, u.id, p, nil)) }, fault.ValidationFailed, "host")
	p.UpstreamHost = value("preserve")
	u.wantRefused(func() error { return second(u.PatchUpstream(ctx(), u.caller, u.id, p, nil)) }, fault.ValidationFailed, "host")
	p.UpstreamHost = value("orders.example")
	u.must(second(u.PatchUpstream(ctx(), u.caller, u.id, p, nil)))
	for _, c := range []struct {
		field  string
		change gateway.Patch
	}{
		{"upstream_host", gateway.Patch{UpstreamHost: null[string]()}},
		{"upstream_url", gateway.Patch{UpstreamURL: value("https://orders.internal:8443")}},
		{"upstream_url", gateway.Patch{UpstreamURL: value("https://10.0.0.1")}},
	} {
		u.wantRefused(func() error { return second(u.UpdateGateway(ctx(), u.caller, u.id, c.change, nil)) }, fault.ValidationFailed, c.field)
	}
	u.must(second(u.UpdateGateway(ctx(), u.caller, u.id, gateway.Patch{UpstreamURL: value("https://other.internal")}, nil)))
	if got := u.now().Upstream.AllTargets(); len(got) != 1 || got[0] != (gateway.Target{URL: "https://other.internal", Resolve: gateway.ResolveSRV}) {
		t.Errorf("got the targets %+v; want the other name with its SRV records", got)
	}
}
