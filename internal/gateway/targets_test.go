package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: targets.md 1, an upstream of a file is checked, and each problem names the field and has the position of the
// wrong value. What comes in a later version is an unknown field.
func TestInvalidUpstreamsAreRejected(t *testing.T) {
	many := strings.Repeat("{url: http://a}, ", gateway.MaxTargets+1)
	for _, c := range []struct {
		text           string
		column         int
		field, message string
	}{
		{"{}", 15, "", "must be a list"},
		{"[5]", 16, "[0]", "must be a mapping"},
		{"[{targets: [{url: http://a}]}]", 16, "[0].name", "is missing"},
		{"[{name: A}]", 23, "[0].name", "1 to 64 characters of a-z"},
		{"[{name: " + strings.Repeat("a", 65) + "}]", 23, "[0].name", "1 to 64 characters of a-z"},
		{"[{name: a}, {name: a}]", 34, "[1].name", "is a duplicate"},
		{"[{name: a, split: {}}]", 26, "[0].split", "is not a field of an upstream: use name, targets, balance"},
		{"[{name: a, refresh: 999ms}]", 35, "[0].refresh", "between 1s and 1h"},
		{"[{name: a, refresh: 61m}]", 35, "[0].refresh", "between 1s and 1h"},
		{"[{name: a, upstream_host: b}]", 26, "[0].upstream_host", "is not a field"},
		{"[{name: a, targets: null}]", 35, "[0].targets", "must be a list"},
		{"[{name: a, targets: []}]", 35, "[0].targets", "at least one target"},
		{"[{name: a, targets: [" + many + "]}]", 35, "[0].targets", "more than 256"},
		{"[{name: a, targets: [{weight: 1}]}]", 36, "[0].targets[0].url", "is missing"},
		{"[{name: a, targets: [{url: ftp://a}]}]", 42, "[0].targets[0].url", "must start with http"},
		{"[{name: a, targets: [{url: 'http://u:p@a'}]}]", 42, "[0].targets[0].url", "send credentials with headers"},
		{"[{name: a, targets: [{url: http://a, priority: 1}]}]", 52, "[0].targets[0].priority", "is not a field of a target: use url, weight, backup, drain, resolve"},
		{"[{name: a, targets: [{url: http://a, resolve: aaaa}]}]", 61, "[0].targets[0].resolve", "must be one of none, a, srv"},
		{"[{name: a, targets: [{url: 'http://a:80', resolve: srv}]}]", 42, "[0].targets[0].url", "must not have a port with resolve srv"},
		{"[{name: a, targets: [{url: 'http://10.0.0.1', resolve: srv}]}]", 42, "[0].targets[0].url", "must have the name of SRV records"},
		{"[{name: a, targets: [{url: 'http://10.0.0.1', resolve: a}]}]", 0, "", ""},
		{"[{name: a, targets: [{url: http://a, weight: 0}]}]", 60, "[0].targets[0].weight", "between 1 and 1000"},
		{"[{name: a, targets: [{url: http://a, weight: 1001}]}]", 60, "[0].targets[0].weight", "between 1 and 1000"},
		{"[{name: a, targets: [{url: http://a, drain: 1}]}]", 59, "[0].targets[0].drain", "must be true or false"},
		{"[{name: a, targets: [{url: http://a}, {url: https://b}]}]", 59, "[0].targets[1].url", "must start with http:// as the other targets do"},
		{"[{name: a, targets: [{url: http://a}, {url: 'http://A:80/'}]}]", 59, "[0].targets[1].url", "is the same target as targets[0]"},
		{"[{name: a, balance: random}]", 35, "[0].balance", "must be one of least_requests"},
		{"[{name: a, hash_on: 'header:'}]", 35, "[0].hash_on", "header: and the name of a header"},
		{"[{name: a, hash_on: 'header:a b'}]", 35, "[0].hash_on", "header: and the name of a header"},
		{"[{name: a, hash_on: key}]", 35, "[0].hash_on", "must be principal"},
		{"[{name: a, ejection: true}]", 36, "[0].ejection", "must be a mapping, false"},
		{"[{name: a, ejection: {after: 1}}]", 37, "[0].ejection.after", "is not a field of ejection: use failures"},
		{"[{name: a, ejection: {failures: 0}}]", 47, "[0].ejection.failures", "between 1 and"},
		{"[{name: a, ejection: {on: []}}]", 41, "[0].ejection.on", "at least one"},
		{"[{name: a, ejection: {on: [reset, 500]}}]", 49, "[0].ejection.on[1]", "must be one of connect"},
		{"[{name: a, ejection: {on: [reset, reset]}}]", 49, "[0].ejection.on[1]", "is a duplicate"},
		{"[{name: a, ejection: {base: 1d}}]", 43, "[0].ejection.base", "must be a duration"},
		{"[{name: a, ejection: {base: 0s}}]", 43, "[0].ejection.base", "must be a duration"},
		{"[{name: a, ejection: {base: 1h}}]", 43, "[0].ejection.base", "must not be longer than max, which is 300s"},
		{"[{name: a, ejection: {max: 25h}}]", 42, "[0].ejection.max", "between 100ms and 24h"},
		{"[{name: a, ejection: {max_percent: 101}}]", 50, "[0].ejection.max_percent", "between 0 and 100"},
		{"[{name: a, retries: false}]", 35, "[0].retries", "must be a mapping"},
		{"[{name: a, retries: {attempts: 6}}]", 46, "[0].retries.attempts", "between 0 and 5"},
		{"[{name: a, retries: {budget_percent: -1}}]", 52, "[0].retries.budget_percent", "between 0 and 100"},
		{"[{name: a, retries: {on: connect}}]", 40, "[0].retries.on", "must be a list"},
		{"[{name: a, retries: {idempotency_key: yes}}]", 53, "[0].retries.idempotency_key", "must be true or false"},
		{"[{name: a, health: {}}]", 34, "[0].health", "must have exactly one of path, grpc and tcp"},
		{"[{name: a, health: {path: /, tcp: true}}]", 34, "[0].health", "must have exactly one of path, grpc and tcp"},
		{"[{name: a, health: {path: /, after: 1s}}]", 44, "[0].health.after", "is not a field of health: use path"},
		{"[{name: a, health: {path: healthz}}]", 41, "[0].health.path", "must begin with /"},
		{"[{name: a, health: {path: '/a b'}}]", 41, "[0].health.path", "must begin with /"},
		{"[{name: a, health: {grpc: 'a b'}}]", 41, "[0].health.grpc", "must be the name of a service"},
		{"[{name: a, health: {tcp: true, interval: 500ms}}]", 56, "[0].health.interval", "between 1s and 1h, such as"},
		{"[{name: a, health: {tcp: true, timeout: 61s}}]", 55, "[0].health.timeout", "between 100ms and 1m, such as"},
		{"[{name: a, health: {tcp: true, unhealthy: 0}}]", 57, "[0].health.unhealthy", "between 1 and 100"},
		{"[{name: a, health: {tcp: true, healthy: 101}}]", 55, "[0].health.healthy", "between 1 and 100"},
		{"[{name: a, health: {tcp: true, statuses: 200}}]", 56, "[0].health.statuses", "needs path"},
		{"[{name: a, health: {path: /, statuses: 399-200}}]", 54, "[0].health.statuses", "between 200 and 599 or ranges"},
		{"[{name: a, health: {path: /, statuses: '199'}}]", 54, "[0].health.statuses", "between 200 and 599 or ranges"},
		{"[{name: a, health: {path: /, statuses: ok}}]", 54, "[0].health.statuses", "between 200 and 599 or ranges"},
		{"[{name: a, health: {tcp: true, headers: {X-A: b}}}]", 55, "[0].health.headers", "needs path or grpc"},
		{"[{name: a, health: {path: /, headers: {User-Agent: b}}}]", 66, "[0].health.headers.User-Agent", "is reserved"},
		{"[{name: a, health: {path: /, headers: {Host: b}}}]", 60, "[0].health.headers.Host", "is reserved"},
		{"[{name: a, timeout: 2h}]", 35, "[0].timeout", "between 1s and 1h"},
		{"[{name: a, host: 'a b'}]", 32, "[0].host", "must be target, preserve, or a hostname"},
		{"[{name: a, connect_timeout: 1ms}]", 43, "[0].connect_timeout", "between 100ms and 1m"},
		{"[{name: a, idle_timeout: 1ms}]", 40, "[0].idle_timeout", "between 1s and 1h"},
		{"[{name: a, max_connection_age: 1ms}]", 46, "[0].max_connection_age", "between 1s and 24h"},
		{"[{name: a, max_connections: 0}]", 43, "[0].max_connections", "between 1 and 100000"},
		{"[{name: a, headers: {X-A: 'é\\n'}}]", 0, "", ""},
		{"[{name: a, headers: {Host: x}}]", 42, "[0].headers.Host", "is reserved"},
		{"[{name: a, ca: x}]", 30, "[0].ca", "certificates in PEM"},
		{"[{name: a, client_key: x}]", 38, "[0].client_key", "one private key in PEM"},
	} {
		_, err := gateway.ParseDocument([]byte("gateway:\n  upstreams: " + c.text + "\nroutes: []\n"))
		if c.message == "" {
			if err != nil {
				t.Errorf("%s: got %v, want no error", c.text, err)
			}
			continue
		}
		wantProblem(t, c.text, err, fmt.Sprintf("2, column %d", c.column-1), "gateway.upstreams"+c.field, c.message)
	}
	var list []string
	for i := range gateway.MaxUpstreams {
		list = append(list, fmt.Sprintf("{name: a%d}", i))
	}
	for n, message := range map[int]string{gateway.MaxUpstreams - 1: "", gateway.MaxUpstreams: "more than 64 upstreams"} {
		text := "gateway: {upstreams: [{name: default}, " + strings.Join(list[:n], ", ") + "]}\nroutes: []\n"
		if _, err := gateway.ParseDocument([]byte(text)); fault.MessageOf(err) != "" && message == "" && err != nil || message != "" && (err == nil || !strings.Contains(err.Error(), message)) {
			t.Errorf("%d upstreams: got %v, want %q", n, err, message)
		}
	}
}

// Guarantee: statuses in a list of failures may be numbers; absent parts of an object have their defaults, and null is the
// same as absent.
func TestPartsOfAnUpstream(t *testing.T) {
	d, err := gateway.ParseDocument([]byte(`gateway:
  upstreams:
    - {name: a, ejection: {on: [502, "503"], base: null}, retries: {on: []}}
    - {name: b, ejection: false, retries: null, balance: null, health: null}
    - {name: c, health: {path: /healthz, statuses: 204, interval: null, headers: null}}
    - {name: d, health: {grpc: "", healthy: 1}}
routes:
  - {path: /a, methods: [GET], upstream: a}
  - {path: /b, methods: [GET], upstream: default}
  - {path: /c, methods: [GET], upstream: null}
`))
	if err != nil {
		t.Fatal(err)
	}
	e, r := d.Gateway.Upstreams.Value[0].Ejection.Value, d.Gateway.Upstreams.Value[0].Retries.Value
	if e.Failures != 5 || !slices.Equal(e.On, []string{"502", "503"}) || e.Base != "10s" || e.Max != "300s" || e.MaxPercent != 50 {
		t.Errorf("got the ejection %+v", e)
	}
	if r.Attempts != 1 || r.BudgetPercent != 20 || r.On == nil || len(r.On) > 0 {
		t.Errorf("got the retries %+v", r)
	}
	b := &d.Gateway.Upstreams.Value[1]
	if !b.Ejection.Value.Off || !b.Retries.Null || !b.Balance.Null || b.Targets.Present {
		t.Errorf("got the patch %+v", b)
	}
	h := d.Gateway.Upstreams.Value[2].Health.Value
	if h.Path != "/healthz" || h.Statuses != "204" || h.Interval != "10s" || h.Timeout != "2s" || h.Unhealthy != 2 || h.Healthy != 2 || h.Headers == nil || len(h.Headers) > 0 {
		t.Errorf("got the checks %+v", h)
	}
	if h := d.Gateway.Upstreams.Value[3].Health.Value; h.GRPC == nil || *h.GRPC != "" || h.Healthy != 1 || h.Statuses != "" || h.Headers != nil || !b.Health.Null {
		t.Errorf("got the checks %+v, and %+v", h, b.Health)
	}
	for i, want := range []string{"a", "", ""} {
		if d.Routes[i].Upstream != want {
			t.Errorf("got the upstream %q of route %d, want %q", d.Routes[i].Upstream, i, want)
		}
	}
}

// Guarantee: an upstream with one target that has the defaults is stored as it was before there were several, and the URL is
// always that of the first target.
func TestStoredTargets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u gateway.Upstream
		drawUpstream(t, &u, "http")
		list := slices.Clone(u.AllTargets())
		plain := len(list) == 1 && list[0] == gateway.Target{URL: list[0].URL}
		if u.URL != list[0].URL || (u.Targets == nil) != plain {
			t.Fatalf("got the URL %s and the targets %+v", u.URL, u.Targets)
		}
		for i, one := range list {
			if one.Weight == 1 || one.WeightOf() < 1 || u.FindTarget(one.URL) != i || u.FindTarget(strings.ToUpper(one.URL[:4])+one.URL[4:]) != i {
				t.Fatalf("got the target %+v at %d, found at %d", one, i, u.FindTarget(one.URL))
			}
		}
	})
}

// Guarantee: each row of the table of an upstream's settings exports, applies and shows what it is given, and null restores
// the default.
func TestSettingsOfAnUpstream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := gateway.Upstream{Name: "a"}
		drawUpstream(t, &from, "https")
		from.Timeout, from.Host, from.Timeouts.Connect = "7s", "a.example", "2s"
		from.Health = from.Health.WithoutHeaders() // package control sets them
		g := &gateway.Gateway{Timeout: gateway.DefaultTimeout}
		alone, target := g.Alone(&from), g.Alone(&gateway.Upstream{Name: "a"})
		for _, s := range gateway.UpstreamSettings() {
			var p gateway.UpstreamPatch
			p.Put(&s, s.Value(alone))
			if s.Kind == gateway.KindHeaders || s.Kind == gateway.KindKey || s.Name == "hash_on" && from.Balance.HashOn == "" || s.Name == "max_connections" || s.Name == "idle_timeout" || s.Name == "max_connection_age" || s.Kind == gateway.KindCertificate {
				continue // empty here
			}
			change, err := s.Change(&p.Patch)
			if err != nil {
				t.Fatalf("%s: %v", s.Name, err)
			}
			change(target)
			if s.NotNull {
				continue
			}
			var null gateway.UpstreamPatch
			null.Put(&s, nil)
			blank := *alone
			if change, err = s.Change(&null.Patch); err != nil {
				t.Fatalf("%s: %v", s.Name, err)
			}
			change(&blank)
			if got := fmt.Sprint(s.Value(&blank)); got != fmt.Sprint(s.Default()) {
				t.Fatalf("%s: got %s after null, want %v", s.Name, got, s.Default())
			}
		}
		g.PutUpstream(target.Upstream)
		for _, s := range gateway.UpstreamSettings() {
			if got, want := fmt.Sprint(s.Value(g.Alone(g.UpstreamNamed("a")))), fmt.Sprint(s.Value(alone)); got != want {
				t.Fatalf("%s: got %s, want %s", s.Name, got, want)
			}
		}
		if err := g.Others[0].Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// Guarantee: balance and hash_on fit together.
func TestHashNeedsSomething(t *testing.T) {
	for _, c := range []struct {
		balance gateway.Balance
		field   string
	}{
		{gateway.Balance{}, ""},
		{gateway.Balance{Policy: gateway.Hash}, "hash_on"},
		{gateway.Balance{Policy: gateway.Hash, HashOn: gateway.HashAddress}, ""},
		{gateway.Balance{HashOn: gateway.HashAddress}, "hash_on"},
	} {
		err := (&gateway.Upstream{URL: "http://a", Balance: c.balance}).Check()
		if (err == nil) != (c.field == "") || err != nil && fault.ProblemsOf(err)[0].Field != c.field {
			t.Errorf("%+v: got %v, want a problem of %q", c.balance, err, c.field)
		}
	}
}
