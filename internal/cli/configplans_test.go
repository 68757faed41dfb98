package cli_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
)

// writePlans writes a directory with a gateway, and with a plan that is its default and limits it.
func writePlans(t *testing.T) (dir string) {
	t.Helper()
	dir = writeConfigs(t, "", "orders")
	files := map[string]string{
		"plans.yaml": "plans:\n  - name: pro\n    limits:\n      - {name: all, sustained: 9/s}\n" +
			"      - {name: orders, sustained: 5/s, gateway: orders}\n",
		"orders.yaml": "gateway: {name: orders, upstream_url: 'http://127.0.0.1:9', default_plan: pro}\nroutes: []\n",
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// limitsOf returns the names of a plan's limits.
func limitsOf(t *testing.T, s *keygatetest.Server, name string) string {
	t.Helper()
	for p, err := range s.Admin.Plans(t.Context(), client.PlanFilter{Name: name}) {
		if err != nil {
			t.Fatal(err)
		}
		names := make([]string, len(p.Limits))
		for i := range p.Limits {
			names[i] = p.Limits[i].Name
		}
		return strings.Join(names, " ")
	}
	return "no plan"
}

// Guarantee: if a step fails, a plan has the limits of the gateways that exist, and no gateway is without its plan.
// Repeating the command does the rest.
func TestPlansAndGatewaysAreAppliedInOrder(t *testing.T) {
	s := keygatetest.Start(t)
	dir := writePlans(t)
	refuse := func(method, prefix string) func(r *http.Request) bool {
		return func(r *http.Request) bool {
			return r.Method != method || !strings.HasPrefix(r.URL.Path, prefix) || r.URL.Query().Has("dry_run")
		}
	}
	for _, c := range []struct {
		before       func(r *http.Request) bool
		status       int
		said, limits string
		plan         string
	}{
		{refuse(http.MethodPost, "/v1/plans"), 7, "Not applied after the failure: " + filepath.Join(dir, "orders.yaml") + ", limits of new gateways in plan pro.", "no plan", ""},
		{refuse(http.MethodPost, "/v1/gateways"), 7, "Applied before the failure: plan pro.", "all", ""},
		{refuse(http.MethodPatch, "/v1/plans"), 7, "Applied before the failure: " + filepath.Join(dir, "orders.yaml"), "all", "pro"},
		{func(*http.Request) bool { return true }, 0, "Plans: 0 created, 1 changed, 0 deleted, 0 without differences.", "all orders", "pro"},
	} {
		status, _, said := applyThrough(t, s, c.before, dir)
		if status != c.status || !strings.Contains(said, c.said) {
			t.Fatalf("exit status %d, want %d and %q: %s", status, c.status, c.said, said)
		}
		if got := limitsOf(t, s, "pro"); got != c.limits {
			t.Errorf("after %q the plan has the limits %q, want %q", c.said, got, c.limits)
		}
		for g, err := range s.Admin.Gateways(t.Context(), client.ListOptions{}) {
			if err != nil || g.DefaultPlan == nil || *g.DefaultPlan != c.plan {
				t.Errorf("after %q the gateway %s has the plan %v (%v), want %q", c.said, g.Name, g.DefaultPlan, err, c.plan)
			}
		}
	}
}

// Guarantee: a plan that changes while the command runs is not overwritten.
func TestPlanThatChangedIsNotOverwritten(t *testing.T) {
	s := keygatetest.Start(t)
	dir := writePlans(t)
	change := func(method string) func(r *http.Request) bool {
		return func(r *http.Request) bool {
			if r.Method == method && strings.HasPrefix(r.URL.Path, "/v1/plans/") {
				for p, err := range s.Admin.Plans(t.Context(), client.PlanFilter{Name: "pro"}) {
					if err == nil {
						_, err = s.Admin.UpdatePlan(t.Context(), p.PlanID, client.PlanPatch{Title: client.Set(r.Header.Get("Idempotency-Key") + "x")})
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
			return true
		}
	}
	status, _, said := applyThrough(t, s, change(http.MethodPatch), dir)
	if status != 6 || !strings.Contains(said, "was changed meanwhile: run the command again") || limitsOf(t, s, "pro") != "all" {
		t.Errorf("exit status %d, want 6 and the reason: %s", status, said)
	}
	if status, _, said := applyThrough(t, s, func(*http.Request) bool { return true }, dir); status != 0 || limitsOf(t, s, "pro") != "all orders" {
		t.Errorf("exit status %d of the repetition: %s", status, said)
	}
}

// Guarantee: the name of a new plan is the argument or --name, and not both.
func TestNameOfANewPlan(t *testing.T) {
	s := keygatetest.Start(t)
	env := map[string]string{"KEYGATE_URL": s.AdminURL(), "KEYGATE_API_KEY": s.AdminKey}
	for _, c := range []struct {
		args   []string
		status int
	}{
		{[]string{"first", "--limit", "all=9/s"}, 0},
		{[]string{"--name", "second", "--limit", "all=9/s"}, 0},
		{[]string{"third", "--name", "third", "--limit", "all=9/s"}, 2},
		{[]string{"--limit", "all=9/s"}, 2},
	} {
		if status, _, said := runWith(t, env, append([]string{"plans", "create"}, c.args...)...); status != c.status {
			t.Errorf("%q: exit status %d, want %d: %s", c.args, status, c.status, said)
		}
	}
	if limitsOf(t, s, "first") != "all" || limitsOf(t, s, "second") != "all" {
		t.Error("the plans were not created")
	}
}
