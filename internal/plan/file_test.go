package plan_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/plan"
)

const wholeFile = `plans:
  - name: free
    limits: []
  - name: pro
    title: "Für Profis: alles"
    time_zone: Europe/Berlin
    anchor_day: 15
    limits:
      - name: per-minute
        sustained: 600/min
        burst: 100/s
        per: owner
      - name: search
        sustained: 5/s
        gateway: orders
        routes: [/search, "/orders/{id}", /v1/*]
      - name: per-month
        quota: 100000/month
        overage: allow
        warn_at: [50, 100, 150]
        per: owner
      - name: trial
        quota: 50/total
        warn_at: []
      - name: parallel
        concurrency: 5
        per: owner
`

// Guarantee: a file of plans that is written is read as the same plans, and written as the same file.
func TestFileIsReadAsWritten(t *testing.T) {
	f, err := plan.ParseFile([]byte(wholeFile))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.Encode()); got != wholeFile {
		t.Errorf("got the file\n%s\nwant\n%s", got, wholeFile)
	}
	pro := f.Plans[1]
	if pro.TimeZone != "Europe/Berlin" || pro.AnchorDay != 15 || pro.Limits[1].GatewayID != "" || pro.Gateways[1] != "orders" || pro.Limits[0].Per != plan.PerOwner {
		t.Errorf("got %+v", pro)
	}
	asJSON := `{"$schema": "x", "plans": [{"name": "free", "limits": [], "title": null, "time_zone": null, "anchor_day": null}]}`
	g, err := plan.ParseFile([]byte(asJSON))
	if err != nil || !reflect.DeepEqual(g.Plans[0].Plan, f.Plans[0].Plan) {
		t.Errorf("got %+v and %v of JSON, want %+v", g.Plans, err, f.Plans[0])
	}
	if got := string((&plan.File{}).Encode()); got != "plans: []\n" {
		t.Errorf("got %q of no plans", got)
	}
}

// Guarantee: every mistake of a file of plans is reported once, at its position and with its field.
func TestMistakesInFilesOfPlans(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"plans: {}", "plans"},
		{"plans: []\nroutes: []", "routes"},
		{"plans: [7]", "plans[0]"},
		{"plans: [{name: a, limits: [7, 8]}]", "plans[0].limits[0] plans[0].limits[1]"},
		{"plans: [{name: a}]", "plans[0].limits"},
		{"plans: [{limits: []}]", "plans[0].name"},
		{"plans: [{name: A, limits: []}]", "plans[0].name"},
		{"plans: [{name: a, limits: []}, {name: a, limits: []}]", "plans[1].name"},
		{"plans: [{name: a, limits: [], quota: 5}]", "plans[0].quota"},
		{"plans: [{name: a, title: '', limits: []}]", "plans[0].title"},
		{"plans: [{name: a, time_zone: Berlin, anchor_day: 29, limits: []}]", "plans[0].time_zone plans[0].anchor_day"},
		{"plans: [{name: a, anchor_day: '5', limits: []}]", "plans[0].anchor_day"},
		{"plans: [{name: a, limits: null}]", "plans[0].limits"},
		{"plans: [{name: a, limits: [{name: b}]}]", "plans[0].limits[0].sustained"},
		{"plans: [{name: a, limits: [{sustained: 5/s}]}]", "plans[0].limits[0].name"},
		{"plans: [{name: a, limits: [{name: b, sustained: 5}]}]", "plans[0].limits[0].sustained"},
		{"plans: [{name: a, limits: [{name: b, sustained: 5/x, burst: 6/x, per: ip}]}]", "plans[0].limits[0].sustained plans[0].limits[0].burst plans[0].limits[0].per"},
		{"plans: [{name: a, limits: [{name: b, sustained: 5/s, routes: [/a]}]}]", "plans[0].limits[0].routes"},
		{"plans: [{name: a, limits: [{name: b, sustained: 5/s, gateway: g, routes: [a, /b, /b]}]}]", "plans[0].limits[0].routes[0] plans[0].limits[0].routes[2]"},
		{"plans: [{name: a, limits: [{name: b, sustained: 5/s}, {name: b, sustained: 6/s}, {name: '', sustained: 6/x}]}]",
			"plans[0].limits[1].name plans[0].limits[2].name plans[0].limits[2].sustained"},
		{"plans: [{name: a, limits: [{name: b, sustained: 5/s, gateway_id: gw_1}]}]", "plans[0].limits[0].gateway_id"},
		{"plans: [{name: a, limits: [{name: b, quota: 5}]}]", "plans[0].limits[0].quota"},
		{"plans: [{name: a, limits: [{name: b, quota: 5, overage: allow, warn_at: [7]}]}]", "plans[0].limits[0].quota"},
		{"plans: [{name: a, limits: [{name: b, concurrency: '5', meter: requests}]}]", "plans[0].limits[0].concurrency"},
		{"plans: [{name: a, limits: [{name: b, concurrency: 1.5, burst: 5/x}]}]", "plans[0].limits[0].concurrency plans[0].limits[0].burst"},
		{"plans: [{name: a, limits: [{name: b, Concurrency: 5}]}]", "plans[0].limits[0].Concurrency"},
		{"plans: [{name: a, limits: [{name: b, concurrency: 0}, {name: c, concurrency: 1000001}]}]", "plans[0].limits[0].concurrency plans[0].limits[1].concurrency"},
		{"plans: [{name: a, limits: [{name: b, concurrency: 5, quota: null, meter: tokens, overage: allow, warn_at: [80], burst: 1/s}]}]",
			"plans[0].limits[0].meter plans[0].limits[0].overage plans[0].limits[0].warn_at plans[0].limits[0].burst"},
		{"plans: [{name: a, limits: [{name: b, concurrency: null}]}]", "plans[0].limits[0].sustained"},
		{"plans: [{name: a, limits: [{name: b, concurrency: 5, sustained: 1/s}]}]", "plans[0].limits[0].concurrency"},
		{"plans: [{name: a, limits: [{name: b, quota: 5/hour, meter: Tokens, overage: no}]}]", "plans[0].limits[0].quota plans[0].limits[0].meter plans[0].limits[0].overage"},
		{"plans: [{name: a, limits: [{name: b, Quota: 5/day, overage: allow}]}]", "plans[0].limits[0].Quota"},
		{"plans: [{name: a, limits: [{name: b, quota: 5/day, sustained: null, warn_at: [80, x, 0]}]}]", "plans[0].limits[0].warn_at[1]"},
		{"plans: [{name: a, limits: [{name: b, quota: 5/day, warn_at: [1e9, 80, -1]}]}]", "plans[0].limits[0].warn_at[0] plans[0].limits[0].warn_at[2]"},
		{"plans: [{name: a, limits: [{name: b, quota: 5/day, warn_at: [99999999999999999999]}]}]", "plans[0].limits[0].warn_at[0]"},
		{"plans: [{name: a, limits: [{name: b, quota: 5/day, sustained: 5/s}]}]", "plans[0].limits[0].quota"},
		{"plans: [{name: a, limits: [{name: b, sustained: 5/s, warn_at: 80}]}]", "plans[0].limits[0].warn_at"},
		{"plans: [{name: a, limits: [{name: b, sustained: null}]}]", "plans[0].limits[0].sustained"},
		{"plans: [{name: '${env:A}', limits: 5}]", "plans[0].name plans[0].limits"},
	} {
		_, err := plan.ParseFile([]byte(c.text))
		var fields []string
		for _, p := range fault.ProblemsOf(err) {
			if fields = append(fields, p.Field); p.Line == 0 {
				t.Errorf("%s: %s has no position", c.text, p.Field)
			}
		}
		if got := strings.Join(fields, " "); got != c.want {
			t.Errorf("%s: got problems of %s, want %s: %v", c.text, got, c.want, err)
		}
	}
}

// Guarantee: reading a file of plans does not panic, and what is valid is read again as it is written.
func FuzzParseFile(f *testing.F) {
	f.Add(wholeFile)
	f.Add(`{"plans": [{"name": "a", "limits": [{"name": "b", "sustained": "5/s", "routes": null}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := plan.ParseFile([]byte(text))
		if err != nil {
			return
		}
		written := file.Encode()
		again, err := plan.ParseFile(written)
		if err != nil || !bytes.Equal(again.Encode(), written) {
			t.Errorf("got %v, and\n%s\nof\n%s", err, again.Encode(), written)
		}
	})
}

// Guarantee: a file with one plan may leave its name to the command that reads it, and has the fields of a file of plans.
func TestParsePlan(t *testing.T) {
	p, err := plan.ParsePlan([]byte("limits: [{name: b, sustained: 5/s}]"))
	if err != nil || p.Name != "" || len(p.Limits) != 1 {
		t.Errorf("got %+v and %v of a plan without a name", p, err)
	}
	for text, want := range map[string]string{
		"name: A\nlimits: []": "name", "name: a": "limits", "limits: [{name: b}]": "limits[0].sustained", "7": "", "name: a\nlimits: []\nplan_id: x": "plan_id",
	} {
		_, err := plan.ParsePlan([]byte(text))
		if got := fieldOf(err); err == nil || got != want {
			t.Errorf("%s: got the field %q (%v), want %q", text, got, err, want)
		}
	}
}
