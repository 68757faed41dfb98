package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/plan"
)

// Guarantee: what is wrong with a limit is said at its field, and everything at once.
func TestParseLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		in    plan.LimitInput
		field string // "" if the limit is valid
	}{
		{"a rate", plan.LimitInput{Name: "per-minute", Sustained: "600/min", Burst: "50/s"}, ""},
		{"by owner", plan.LimitInput{Name: "a", Sustained: "1/s", Per: "owner"}, ""},
		{"on routes", plan.LimitInput{Name: "a", Sustained: "1/s", GatewayID: "gw_1", Routes: []string{"/orders/{id}", "/v1/*"}}, ""},
		{"no name", plan.LimitInput{Sustained: "1/s"}, "limits[0].name"},
		{"upper case", plan.LimitInput{Name: "A", Sustained: "1/s"}, "limits[0].name"},
		{"long name", plan.LimitInput{Name: strings.Repeat("a", 33), Sustained: "1/s"}, "limits[0].name"},
		{"no rate", plan.LimitInput{Name: "a", Burst: "1/s"}, "limits[0].sustained"},
		{"bad rate", plan.LimitInput{Name: "a", Sustained: "1/fortnight"}, "limits[0].sustained"},
		{"bad burst", plan.LimitInput{Name: "a", Sustained: "1/s", Burst: "0/s"}, "limits[0].burst"},
		{"unknown subject", plan.LimitInput{Name: "a", Sustained: "1/s", Per: "account"}, "limits[0].per"},
		{"routes of no gateway", plan.LimitInput{Name: "a", Sustained: "1/s", Routes: []string{"/a"}}, "limits[0].routes"},
		{"no path", plan.LimitInput{Name: "a", Sustained: "1/s", GatewayID: "gw_1", Routes: []string{"a"}}, "limits[0].routes[0]"},
		{"a path twice", plan.LimitInput{Name: "a", Sustained: "1/s", GatewayID: "gw_1", Routes: []string{"/a", "/a"}}, "limits[0].routes[1]"},
	} {
		limits, err := plan.ParseLimits([]plan.LimitInput{c.in})
		if err == nil {
			p := plan.Plan{Name: "free", Limits: limits, TimeZone: plan.DefaultZone, AnchorDay: plan.DefaultAnchor}
			err = p.Validate()
		}
		if got := fieldOf(err); got != c.field {
			t.Errorf("%s: got the field %q (%v), want %q", c.name, got, err, c.field)
		}
	}
}

func fieldOf(err error) string {
	var e *fault.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Field
}

// Guarantee: a plan has a name that fits into a header, a zone of the IANA database, and a day that every month has.
func TestValidate(t *testing.T) {
	for _, c := range []struct {
		change func(p *plan.Plan)
		field  string
	}{
		{func(*plan.Plan) {}, ""},
		{func(p *plan.Plan) { p.Name = strings.Repeat("a", 64) }, ""},
		{func(p *plan.Plan) { p.Name = strings.Repeat("a", 65) }, "name"},
		{func(p *plan.Plan) { p.Name = "Gold plan" }, "name"},
		{func(p *plan.Plan) { p.Title = "\u202e" }, "title"},
		{func(p *plan.Plan) { p.TimeZone = "Europe/Berlin" }, ""},
		{func(p *plan.Plan) { p.TimeZone = "Local" }, "time_zone"},
		{func(p *plan.Plan) { p.TimeZone = "localtime" }, "time_zone"},
		{func(p *plan.Plan) { p.TimeZone = "posix/Europe/Berlin" }, "time_zone"},
		{func(p *plan.Plan) { p.TimeZone = "../etc/passwd" }, "time_zone"},
		{func(p *plan.Plan) { p.TimeZone = "Berlin" }, "time_zone"},
		{func(p *plan.Plan) { p.AnchorDay = 28 }, ""},
		{func(p *plan.Plan) { p.AnchorDay = 29 }, "anchor_day"},
		{func(p *plan.Plan) { p.Limits = make([]plan.Limit, 9) }, "limits"},
		{func(p *plan.Plan) {
			p.Limits = []plan.Limit{{Name: "a", Per: plan.PerKey}, {Name: "a", Per: plan.PerKey}}
		}, "limits[1].name"},
	} {
		p := plan.Plan{Name: "free", TimeZone: plan.DefaultZone, AnchorDay: plan.DefaultAnchor}
		c.change(&p)
		if got := fieldOf(p.Validate()); got != c.field {
			t.Errorf("%+v: got the field %q, want %q", p, got, c.field)
		}
	}
}

// Guarantee: a limit covers the routes that it names, and with /prefix/* whatever is below the prefix.
func TestCovers(t *testing.T) {
	long := "/{id}/" + strings.Repeat("x", 249)
	l := plan.Limit{GatewayID: "gw_1", Routes: []string{"/orders/{id}", "/v1/*", "/users/{id}/files/{name}/*", long}}
	for _, c := range []struct {
		gateway, path string
		want          bool
	}{
		{"gw_1", "/orders/{id}", true}, {"gw_1", "/orders", false}, {"gw_1", "/v1", true}, {"gw_1", "/v1/a/{b}", true}, {"gw_1", "/v1/*", true},
		{"gw_1", "/v10", false}, {"gw_2", "/orders/{id}", false},
		// The names of parameters do not matter, and the rest does.
		{"gw_1", "/orders/{order}", true}, {"gw_1", "/orders/{id}/items", false}, {"gw_1", "/orders/{id}.json", false}, {"gw_1", "/orders/id", false},
		{"gw_1", "/users/{user}/files/{file}/x", true}, {"gw_1", "/users/{user}/files", false}, {"gw_1", "/users/{user}/files/{file}", true},
		{"gw_1", long, true}, {"gw_1", long + "x", false}, {"gw_1", long + "/x", false},
	} {
		if got := l.Covers(c.gateway, c.path); got != c.want {
			t.Errorf("%s %s: got %v, want %v", c.gateway, c.path, got, c.want)
		}
	}
	if everywhere := (plan.Limit{}); !everywhere.Covers("gw_2", "/a") {
		t.Error("a limit without gateway and routes does not cover a route")
	}
	paths := plan.NewPaths(l.Routes)
	if n := testing.AllocsPerRun(100, func() { paths.Cover("/users/{someone}/files/{a-file-with-a-long-name}/x"); paths.Cover(long) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
