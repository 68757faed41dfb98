package rows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

func newCodec(t *testing.T) *PageCodec {
	t.Helper()
	codec, err := NewPageCodec()
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

// rulesOf returns rules that are written in YAML.
func rulesOf(t interface {
	Helper()
	Fatal(args ...any)
}, text string) (rules cost.Rules) {
	t.Helper()
	if err := rules.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return rules
}

func pageRoute(n int) gateway.Route {
	return gateway.Route{
		ID: fmt.Sprintf("rt_%03d", n), GatewayID: "gw_1", Path: fmt.Sprintf("/r/%d", n), Methods: []string{"GET"}, Auth: gateway.AuthKey, Source: gateway.API,
		CreatedAt: time.Unix(1, 0).UTC(), Version: 1,
	}
}

// Guarantee: routes of any table come back as they were, over any pages. Routes with the same text of a cost share it, also
// between pages. A page has the lowest form that has what its routes
// have, so that earlier versions read it, or say that they cannot.
func TestPagesKeepCosts(t *testing.T) {
	codec := newCodec(t)
	rapid.Check(t, func(t *rapid.T) {
		routes := make([]gateway.Route, rapid.IntRange(0, 40).Draw(t, "routes"))
		for i := range routes {
			routes[i] = pageRoute(i)
			routes[i].LimitByAPI, routes[i].CostByAPI = rapid.Bool().Draw(t, "limit by API"), rapid.IntRange(0, 9).Draw(t, "cost by API") == 0
			if rapid.Bool().Draw(t, "created before versions had times") {
				routes[i].CreatedAt = time.Time{}
			}
			if price := rapid.IntRange(-10, 3).Draw(t, "price"); price >= 0 {
				routes[i].Cost = rulesOf(t, fmt.Sprintf(`[{meter: tokens, max: 9, from: {json: {"a|b?": 0.5, %q: %d}}}]`, strings.Repeat("c", 200), price+1))
			}
			if rapid.IntRange(0, 9).Draw(t, "has concurrency") == 0 {
				routes[i].Concurrency = ratelimit.Concurrency{Max: rapid.Int64Range(1, ratelimit.MaxConcurrency).Draw(t, "concurrency"), Per: rapid.SampledFrom([]string{"", "key"}).Draw(t, "per")}
			}
			routes[i].ConcurrencyByAPI = rapid.IntRange(0, 9).Draw(t, "concurrency by API") == 0
			if rapid.IntRange(0, 9).Draw(t, "names an upstream") == 0 {
				routes[i].Upstream = rapid.StringMatching(`[a-z0-9_-]{1,64}`).Draw(t, "upstream")
			}
			switch rapid.IntRange(0, 19).Draw(t, "split") {
			case 0:
				routes[i].Split = gateway.Split{}
			case 1, 2:
				routes[i].Split = gateway.Split{{Upstream: "next", Weight: new(gateway.Percent(rapid.IntRange(1, 3).Draw(t, "weight")))}}
			}
			if i > 0 && rapid.IntRange(0, 9).Draw(t, "split as before") == 0 {
				routes[i].Split = routes[i-1].Split
			}
			switch rapid.IntRange(0, 19).Draw(t, "handling") {
			case 0, 1:
				routes[i].Handling = &gateway.Handling{StripPrefix: rapid.SampledFrom([]string{"/r", "/r/1"}).Draw(t, "prefix")}
			case 2:
				routes[i].Handling = &gateway.Handling{Respond: &gateway.Respond{Status: 200, ContentType: "text/plain", Body: rapid.String().Draw(t, "body")}}
			}
			if i > 0 && rapid.IntRange(0, 9).Draw(t, "handling as before") == 0 {
				routes[i].Handling = routes[i-1].Handling
			}
			if i > 0 && rapid.IntRange(0, 3).Draw(t, "as before") == 0 {
				routes[i].Cost = routes[i-1].Cost
			}
		}
		costs := Costs{}
		var got []gateway.Route
		for _, p := range codec.pages(routes, rapid.IntRange(1, 10).Draw(t, "routes of a page"), rapid.IntRange(1, 2000).Draw(t, "bytes of a page")) {
			var err error
			at := len(got)
			if got, err = codec.Routes(got, "gw_1", p.Content, costs); err != nil {
				t.Fatal(err)
			}
			want := byte(plainForm)
			for _, r := range got[at:] {
				switch {
				case r.Handling != nil:
					want = handlingForm
				case r.Upstream != "", r.Split != nil:
					want = max(want, upstreamForm)
				case !r.Concurrency.IsZero() || r.ConcurrencyByAPI:
					want = max(want, concurrencyForm)
				case len(r.Cost) > 0 || r.CostByAPI:
					want = max(want, costForm)
				}
			}
			if p.Content[0] != want {
				t.Fatalf("a page with %+v has form %d, want %d", got[at:], p.Content[0], want)
			}
		}
		if len(routes) > 0 && !reflect.DeepEqual(got, routes) {
			t.Fatalf("\n got %+v\nwant %+v", got, routes)
		}
		shared := map[string]*cost.Rule{}
		for i := range got {
			if len(got[i].Cost) == 0 {
				continue
			}
			text := string(got[i].Cost.AppendJSON(nil))
			if first := shared[text]; first != nil && first != &got[i].Cost[0] {
				t.Fatalf("route %d does not share its cost with an earlier one", i)
			}
			shared[text] = &got[i].Cost[0]
		}
	})
}

// Guarantee: a page of routes without costs is, byte for byte, what versions without costs have written.
func TestPagesWithoutCostsAreUnchanged(t *testing.T) {
	r := pageRoute(1)
	r.LimitByAPI, r.RateLimit = true, ratelimit.Config{Per: "key"}
	r.RateLimit.Sustained, _ = ratelimit.ParseRate("5/s")
	page := newCodec(t).Pages([]gateway.Route{r})[0].Content
	if page[0] != 1 || page[1] != 1 {
		t.Fatalf("the page begins with %v, want form 1 and 1 route", page[:2])
	}
	raw, err := newCodec(t).dec.DecodeAll(page[2:], nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "\x03\x06rt_001\x04/r/1\x03GET\x035/s\x00\x00\x03key\x03key\x03api" + "\x80\x89\x7a" + "\x02"
	if string(raw) != want {
		t.Errorf("got  %q\nwant %q", raw, want)
	}
}

// Guarantee: 100,000 routes with one large cost take little more than the routes alone, and reading them parses the cost once.
func TestOneCostOfManyRoutesIsStoredOnce(t *testing.T) {
	codec := newCodec(t)
	var prices strings.Builder
	for i := range 60 {
		fmt.Fprintf(&prices, `, "%d%s": {a: 1}`, i, strings.Repeat("x", 200))
	}
	routes := make([]gateway.Route, 2*pageRoutes)
	for i := range routes {
		routes[i] = pageRoute(i)
		if i%2 == 0 && i > 0 {
			routes[i].Cost = routes[i-2].Cost
		} else {
			routes[i].Cost = rulesOf(t, `[{meter: tokens, max: 9, from: {json: {a: 1}, by: model, prices: {`+prices.String()[1:]+`}}}]`)
		}
	}
	pages := codec.Pages(routes)
	if len(pages) != 2 {
		t.Errorf("%d routes are %d pages, want 2", len(routes), len(pages))
	}
	costs := Costs{}
	for _, p := range pages {
		if _, err := codec.Routes(nil, "gw_1", p.Content, costs); err != nil {
			t.Fatal(err)
		}
	}
	if len(costs) != 1 {
		t.Errorf("%d costs were read, want 1", len(costs))
	}
}

// Guarantee: a page of a form that this version does not know is refused with an error that says so, and no damaged page is
// read as other routes: flags that its form does not have, a cost that is not valid, a reference to no cost, bytes that are cut off.
func TestDamagedPagesAreRefused(t *testing.T) {
	codec := newCodec(t)
	r := pageRoute(1)
	r.Cost = rulesOf(t, `[{meter: tokens, from: {request: 1}}]`)
	page := codec.Pages([]gateway.Route{r})[0].Content
	newer := append([]byte{newestForm + 1}, page[1:]...)
	if _, err := codec.Routes(nil, "gw_1", newer, Costs{}); err == nil || !strings.Contains(err.Error(), "has form 6, and this version reads forms up to 5") {
		t.Errorf("a page of a newer form: %v", err)
	}
	raw, err := codec.dec.DecodeAll(page[2:], nil)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(raw, append([]byte{0}, binary.AppendUvarint(nil, uint64(len(r.Cost.AppendJSON(nil))))...)) // of the cost
	edited := func(form byte, edit func(raw []byte) []byte) []byte {
		return codec.enc.EncodeAll(edit(bytes.Clone(raw)), []byte{form, 1})
	}
	damaged := map[string][]byte{
		"no form":                append([]byte{0}, page[1:]...),
		"an older form":          edited(plainForm, func(b []byte) []byte { return b }),
		"a flag of another form": edited(costForm, func(b []byte) []byte { b[0] |= concurrencyByAPI; return b }),
		"no concurrency":         edited(concurrencyForm, func(b []byte) []byte { b[0] |= hasConcurrency; return append(b, 0, 0) }),
		"an unknown flag":        edited(concurrencyForm, func(b []byte) []byte { b[0] |= hasUpstream; return b }),
		"a flag without content": edited(upstreamForm, func(b []byte) []byte { b[0] |= hasSplit; return b }),
		"no split":               edited(upstreamForm, func(b []byte) []byte { b[0] |= hasSplit; return append(b, "\x00\x04null"...) }),
		"a split of a text":      edited(upstreamForm, func(b []byte) []byte { b[0] |= hasSplit; return append(b, "\x00\x02{}"...) }),
		"no such split":          edited(upstreamForm, func(b []byte) []byte { b[0] |= hasSplit; return append(b, 1) }),
		"no upstream":            edited(upstreamForm, func(b []byte) []byte { b[0] |= hasUpstream; return append(b, 0) }),
		"no handling":            edited(handlingForm, func(b []byte) []byte { return append(b, "\x01\x00\x00\x02{}"...) }),
		"no such handling":       edited(handlingForm, func(b []byte) []byte { return append(b, 1, 0, 1) }),
		"a handling of no route": edited(handlingForm, func(b []byte) []byte { return append(b, "\x01\x01\x00\x14{\"strip_prefix\":\"/\"}"...) }),
		"handlings of no form":   edited(upstreamForm, func(b []byte) []byte { return append(b, 0) }),
		"too few handlings":      edited(handlingForm, func(b []byte) []byte { return append(b, 1) }),
		"a cost of a meter":      edited(costForm, func(b []byte) []byte { return bytes.Replace(b, []byte(`"tokens"`), []byte(`"TOKENS"`), 1) }),
		"no rules":               edited(costForm, func(b []byte) []byte { return append(b[:at], "\x00\x02[]"...) }),
		"no such cost":           edited(costForm, func(b []byte) []byte { return append(b[:at], 1) }),
	}
	for n := range raw {
		damaged[fmt.Sprintf("%d bytes", n)] = edited(costForm, func(b []byte) []byte { return b[:n] })
	}
	for name, content := range damaged {
		if got, err := codec.Routes(nil, "gw_1", content, Costs{}); err == nil {
			t.Errorf("%s: was read as %+v", name, got)
		}
	}
}
