package health

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/snapshot"
)

// fleet is a Fleet whose targets a Service checks.
type fleet struct {
	*balance.Fleet
	t         *testing.T
	now       func() time.Duration
	suspended atomic.Bool
	service   *Service
}

func startFleet(t *testing.T) *fleet {
	t.Helper()
	start := time.Now()
	f := &fleet{Fleet: balance.NewFleet(nil), t: t, now: func() time.Duration { return time.Since(start) }}
	changed := service.NewSignal()
	f.OnChecks(changed.Notify)
	var err error
	if f.service, err = New(Config{
		Healths: f.Healths, Changed: changed, Pools: newPools(t), Now: f.now, Version: "1",
		Serves: func(account string) bool { return account != "acme" || !f.suspended.Load() },
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.service.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.service.Stop(t.Context()) })
	return f
}

// put gives an upstream of a gateway of an account one target, which is checked as id says.
func (f *fleet) put(account, gateway, target, id string) *balance.Upstream {
	return f.Upstream(f.now(), balance.Name{Account: account, Gateway: gateway, Upstream: "default"}, &balance.Config{
		Targets: []balance.TargetConfig{targetOf(f.t, target)},
		Check:   balance.Check{ID: id, Unhealthy: 2, Healthy: 2, Use: &snapshot.Check{Path: "/" + id, Interval: 20 * time.Millisecond, Timeout: 10 * time.Second, Statuses: statuses(f.t, "200-299")}},
	})
}

func (f *fleet) probes() int {
	f.service.mu.Lock()
	defer f.service.mu.Unlock()
	return len(f.service.probes)
}

// Guarantee: targets.md 3, there is one prober for an address and settings, however many gateways have them, and another for other
// settings and other accounts; it begins with the configuration and ends with it. Nothing of a suspended account is checked.
func TestProbersFollowTheConfiguration(t *testing.T) {
	var checks, running, most atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := running.Add(1)
		defer running.Add(-1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		checks.Add(1)
	}))
	defer up.Close()
	f := startFleet(t)
	f.put("acme", "one", up.URL, "a")
	f.put("acme", "two", up.URL+"/base", "a")
	awaittest.True(t, "the target is checked", func() bool { return checks.Load() > 3 })
	if n := f.probes(); n != 1 || most.Load() != 1 {
		t.Errorf("got %d probers and %d checks at once, want 1", n, most.Load())
	}
	f.put("acme", "three", up.URL, "b")
	f.put("other", "one", up.URL, "a")
	awaittest.True(t, "other settings and accounts have probers", func() bool { return f.probes() == 3 })

	f.Drop(f.now(), balance.Name{Account: "other", Gateway: "one", Upstream: "default"})
	f.Drop(f.now(), balance.Name{Account: "acme", Gateway: "three", Upstream: "default"})
	f.Drop(f.now(), balance.Name{Account: "acme", Gateway: "one", Upstream: "default"})
	awaittest.True(t, "the others have none any more", func() bool { return f.probes() == 1 })
	before := checks.Load()
	awaittest.True(t, "the target is checked for the upstream that is left", func() bool { return checks.Load() > before+1 })

	f.suspended.Store(true)
	done := f.service.done.Load()
	awaittest.True(t, "checks come due", func() bool { return f.service.done.Load() > done+2 })
	before, done = checks.Load(), f.service.done.Load()
	awaittest.True(t, "checks come due", func() bool { return f.service.done.Load() > done+2 })
	if n := checks.Load(); n != before {
		t.Errorf("the target of a suspended account got %d checks", n-before)
	}
	f.suspended.Store(false)
	awaittest.True(t, "the target is checked again", func() bool { return checks.Load() > before })
	f.Drop(f.now(), balance.Name{Account: "acme", Gateway: "two", Upstream: "default"})
	awaittest.True(t, "nothing is checked", func() bool { return f.probes() == 0 })
}

// Guarantee: targets.md 3, a target that fails as often as the settings say is unhealthy with the reason of the check, and healthy after
// as many good ones; the first result counts alone.
func TestResultsReachTheBalance(t *testing.T) {
	var status atomic.Int64
	status.Store(http.StatusServiceUnavailable)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	defer up.Close()
	f := startFleet(t)
	u := f.put("acme", "one", up.URL, "a")
	state := func() balance.Status { return u.Observe(f.now(), nil)[0] }
	awaittest.True(t, "the target is unhealthy", func() bool { return state().State == balance.Unhealthy })
	if s := state(); s.Reason != "status 503" || !s.LastCheck.Known || s.LastCheck.Good || s.LastCheck.Reason != "status 503" {
		t.Errorf("got %+v, want the reason of the check", s)
	}
	status.Store(http.StatusOK)
	awaittest.True(t, "the target is healthy", func() bool { s := state(); return s.State != balance.Unhealthy && s.LastCheck.Good })
	up.Close()
	awaittest.True(t, "the target is unhealthy again", func() bool { s := state(); return s.State == balance.Unhealthy && s.Reason == string(noConnect) })
}
