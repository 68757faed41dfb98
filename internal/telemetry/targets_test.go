package telemetry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/balance"
)

// targetLines returns the lines of a scrape of c without comments, and without the name's prefix.
func targetLines(t testing.TB, c prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			lines = append(lines, fmt.Sprintf("%s{%s} %v", strings.TrimPrefix(f.GetName(), "keygate_"), strings.Join(labels, ","), m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	return lines
}

func balanced(f *balance.Fleet, account, gateway string, addresses ...string) *balance.Upstream {
	c := &balance.Config{Ejection: balance.DefaultEjection(), Retries: balance.DefaultRetries()}
	for i, a := range addresses {
		c.Targets = append(c.Targets, balance.TargetConfig{URL: fmt.Sprintf("http://%s/%d", a, i), Origin: "http://" + a, Address: a, Weight: 1})
	}
	return f.Upstream(0, balance.Name{Account: account, Gateway: gateway, Upstream: "default"}, c)
}

// Guarantee: targets.md, section 9: the metrics of a target are its state, what is in flight, attempts, failures by reason and
// ejections; those of an upstream, whether all of its targets are out. Two targets at one address are one.
func TestTargetMetrics(t *testing.T) {
	f := balance.NewFleet(nil)
	one, same := balanced(f, "a", "gw_1", "10.0.0.1:80"), balanced(f, "a", "gw_2", "10.0.0.2:80", "10.0.0.2:80")
	m, err := NewTargets(TargetsConfig{Upstreams: func() []*balance.Upstream { return []*balance.Upstream{one, same} }, Now: func() time.Duration { return time.Second }})
	if err != nil {
		t.Fatal(err)
	}
	attempt := func(u *balance.Upstream, r balance.Result) *balance.Attempts {
		a := &balance.Attempts{}
		a.Begin(0, u)
		a.Pick(0)
		if r != balance.Canceled {
			a.End(0, r)
			a.Finish(0)
		}
		return a
	}
	attempt(one, balance.Status502)
	for range 5 {
		attempt(one, balance.Connect)
	}
	for range 4 {
		attempt(same, balance.OK)
	}
	attempt(same, balance.Canceled) // stays in flight
	want := `target_ejections_total{gateway=gw_1,target=10.0.0.1:80,upstream=default} 1
target_ejections_total{gateway=gw_2,target=10.0.0.2:80,upstream=default} 0
target_failures_total{gateway=gw_1,reason=502,target=10.0.0.1:80,upstream=default} 1
target_failures_total{gateway=gw_1,reason=connect,target=10.0.0.1:80,upstream=default} 5
target_in_flight{gateway=gw_1,target=10.0.0.1:80,upstream=default} 0
target_in_flight{gateway=gw_2,target=10.0.0.2:80,upstream=default} 1
target_requests_total{gateway=gw_1,target=10.0.0.1:80,upstream=default} 6
target_requests_total{gateway=gw_2,target=10.0.0.2:80,upstream=default} 5
target_up{gateway=gw_1,target=10.0.0.1:80,upstream=default} 0
target_up{gateway=gw_2,target=10.0.0.2:80,upstream=default} 1
targets_left_out{} 0
upstream_all_unhealthy{gateway=gw_1,upstream=default} 1
upstream_all_unhealthy{gateway=gw_2,upstream=default} 0`
	if got := strings.Join(targetLines(t, m), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if most := len(strings.Split(want, "\n")); m.Lines() < most-1 {
		t.Errorf("the targets take %d lines, want at least %d", m.Lines(), most-1)
	}
}

// Guarantee: the series of targets are bounded, whatever the upstreams; each target has series of its own or is counted as left out;
// and accounts share what there is: none is left out for one that has more.
func TestTargetMetricsAreBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := balance.NewFleet(nil)
		var all []*balance.Upstream
		total, of := 0, map[string]int{}
		for i, upstreams := range rapid.SliceOfN(rapid.IntRange(1, 4), 1, 5).Draw(rt, "accounts") {
			account := fmt.Sprintf("acct_%d", i)
			for j := range upstreams {
				n := rapid.IntRange(1, 40).Draw(rt, "targets")
				addresses := make([]string, n)
				for k := range addresses {
					addresses[k] = fmt.Sprintf("10.%d.%d.%d:80", i, j, k)
				}
				all = append(all, balanced(f, account, fmt.Sprintf("gw_%d_%d", i, j), addresses...))
				total += n
				of[fmt.Sprint(i)] += n
			}
		}
		m, err := NewTargets(TargetsConfig{Upstreams: func() []*balance.Upstream { return all }, Now: func() time.Duration { return 0 }, MaxLines: rapid.IntRange(LeastLines, 4000).Draw(rt, "lines")})
		if err != nil {
			rt.Fatal(err)
		}
		named, leftOut, shown := 0, 0, map[string]int{}
		for _, line := range targetLines(t, m) {
			switch {
			case strings.HasPrefix(line, "target_up{"):
				named++
				shown[strings.Split(line, "_")[2]]++
			case strings.HasPrefix(line, "targets_left_out"):
				_, _ = fmt.Sscanf(line, "targets_left_out{} %d", &leftOut)
			}
		}
		if named+leftOut != total || m.Lines() > m.lines {
			rt.Fatalf("got %d targets with series and %d left out, in %d lines, want %d in all and at most %d lines", named, leftOut, m.Lines(), total, m.lines)
		}
		for a := range of {
			for b := range of {
				if shown[a] < of[a] && shown[b] > shown[a]+8 {
					rt.Fatalf("account %s has %d of its %d targets, and account %s has %d", a, shown[a], of[a], b, shown[b])
				}
			}
		}
	})
}

// Guarantee: each attempt after the first counts as a retry by its result. Results of a later version count as others.
func TestRetriesAreCounted(t *testing.T) {
	r, err := NewRequests(RequestsConfig{Routes: func() Routes { return noRoutes{} }})
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, result := range []string{"connect", "reset", "ok", "of_a_later_version"} {
		text = accesslog.AppendAttempt(text, &accesslog.Attempt{Target: "a:1", Result: result})
	}
	r.Take([]accesslog.Entry{{AttemptList: string(text)}, {AttemptList: string(text)}, {}})
	got := map[string]bool{}
	for _, line := range targetLines(t, r) {
		if strings.HasPrefix(line, "retries_total") && !strings.HasSuffix(line, " 0") {
			got[line] = true
		}
	}
	for _, want := range []string{"retries_total{result=reset} 2", "retries_total{result=ok} 2", "retries_total{result=other} 2"} {
		if !got[want] || len(got) != 3 {
			t.Errorf("got %v, want also %s", got, want)
		}
	}
}

// Guarantee: what targets take of the lines is left by routes.
func TestRoutesLeaveLinesToTargets(t *testing.T) {
	others := 0
	r, err := NewRequests(RequestsConfig{Routes: func() Routes { return noRoutes{} }, Others: func() int { return others }})
	if err != nil {
		t.Fatal(err)
	}
	before := r.most
	others = 500
	targetLines(t, r)
	if r.most != before-500 {
		t.Errorf("routes may take %d lines, want 500 less than %d", r.most, before)
	}
}

type noRoutes struct{}

func (noRoutes) Describe(string, string) (hostname, path, methods string, ok bool) {
	return "", "", "", false
}
