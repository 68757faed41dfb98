package adminapi_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
)

// Guarantee: the cost of a route is created, shown with its defaults, replaced as a whole and removed by null; an absent one
// stays. What is wrong with it is said at once, each with its field, together with what is wrong elsewhere.
func TestCostOfARoute(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	routes := "/v1/gateways/" + gatewayID + "/routes"
	const full = `[{"meter":"tokens","reserve":20,"max":100,"from":{"json":{"usage.a|usage.b":1,"c?":-0.5},"by":"model","prices":{"large":{"usage.a":2}}},"unknown":{"bytes_out":0.25}}]`
	cost := func(r *response) string {
		t.Helper()
		var route struct{ Cost json.RawMessage }
		if err := json.Unmarshal([]byte(r.raw), &route); err != nil {
			t.Fatal(err)
		}
		return string(route.Cost)
	}
	created := s.do(request{method: "POST", path: routes, body: `{"path": "/a", "methods": ["GET"], "cost": ` + full + `}`}).want(201)
	if got := cost(created); got != full {
		t.Errorf("got %s, want %s", got, full)
	}
	at := routes + "/" + created.text("route_id")
	const short = `[{"meter":"requests","reserve":3,"max":3,"from":{"request":3}},{"meter":"t","reserve":1,"max":5,"from":{"header":"X-T","expose":true},"unknown":"reserve"}]`
	for _, step := range []struct{ body, want string }{
		{`{"auth": "none"}`, full},
		{`{"cost": [{"from": {"request": 3.0, "json": null}, "meter": "requests"}, {"meter": "t", "max": 5e0, "from": {"header": "X-T", "expose": true}, "unknown": "reserve"}]}`, short},
		{`{"cost": null}`, "null"},
		{`{"cost": ` + short + `}`, short},
		{`{"cost": []}`, "null"},
		{`{"cost": [{"meter": "t", "max": 5, "from": {"header": "X-T"}, "unknown": "max"}]}`, `[{"meter":"t","reserve":1,"max":5,"from":{"header":"X-T"}}]`},
	} {
		if got := cost(s.do(request{method: "PATCH", path: at, body: step.body}).want(200)); got != step.want {
			t.Errorf("%s: got %s, want %s", step.body, got, step.want)
		}
		if got := cost(s.get(at).want(200)); got != step.want {
			t.Errorf("%s, then read: got %s, want %s", step.body, got, step.want)
		}
	}
	none := s.do(request{method: "POST", path: routes, body: `{"path": "/none", "methods": ["GET"], "cost": null}`}).want(201)
	if got := cost(none); got != "null" {
		t.Errorf("got the cost %s, want none", got)
	}
	for body, fields := range map[string]string{
		`{"cost": 5}`:        "cost",
		`{"cost": {"a": 1}}`: "cost",
		`{"cost": "free"}`:   "cost",
		`{"cost": [5]}`:      "cost[0]",
		`{"cost": [{}]}`:     "cost[0].meter cost[0].from",
		`{"cost": [null, {"meter": "a", "meters": 1, "from": {"request": 1}}]}`:                                      "cost[0] cost[1].meters",
		`{"auth": "x", "cost": [{"meter": "bytes_in", "from": {"header": "X"}}], "path": "x"}`:                       "auth cost[0].max cost[0].meter path",
		`{"cost": [{"meter": "a", "max": 5, "from": {"json": {"a..b": 1, "c": "1"}}, "unknown": {"bytes_in": -1}}]}`: "cost[0].from.json.c cost[0].from.json.a..b cost[0].unknown.bytes_in",
	} {
		r := s.do(request{method: "PATCH", path: at, body: body}).want(422)
		var failure struct{ Errors []struct{ Field string } }
		if err := json.Unmarshal([]byte(r.raw), &failure); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range failure.Errors {
			got = append(got, e.Field)
		}
		if len(got) == 0 {
			got = []string{r.text("field")}
		}
		if strings.Join(got, " ") != fields {
			t.Errorf("%s: got problems of %q, want %q: %s", body, got, fields, r.raw)
		}
	}
}

// Guarantee: the client's types of a cost have all of its JSON form.
func TestClientTypesOfCosts(t *testing.T) {
	for _, text := range []string{
		`[{"meter":"tokens","reserve":20,"max":100,"from":{"json":{"a?":-0.000001,"b":1000000},"by":"model","prices":{"large":{"usage.a":2}}},"unknown":{"bytes_out":0.25}}]`,
		`[{"meter":"a","reserve":0,"max":0,"from":{"request":0}},{"meter":"b","reserve":1,"max":9007199254740991,"from":{"header":"X-B","expose":true},"unknown":"reserve"},{"meter":"c","reserve":1,"max":5,"from":{"header":"X-C"},"unknown":{"bytes_in":1}}]`,
	} {
		var costs []client.Cost
		if err := json.Unmarshal([]byte(text), &costs); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(costs)
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if json.Unmarshal(again, &got) != nil || json.Unmarshal([]byte(text), &want) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got  %s\nwant %s", again, text)
		}
	}
}
