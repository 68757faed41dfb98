package cost_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/cost"
)

// Guarantee: section 5 of plans.md, sentence by sentence: what each end of an exchange costs.
func TestSettle(t *testing.T) {
	const (
		price    = `{"meter":"cents","reserve":2,"from":{"request":5}}`
		header   = `{"meter":"cents","reserve":2,"max":100,"from":{"header":"X-Cost"}}`
		body     = `{"meter":"tokens","reserve":2,"max":100,"from":{"json":{"a":1}}}`
		requests = `{"meter":"requests","reserve":2,"max":100,"from":{"json":{"a":1}}}`
		reserve  = `{"meter":"tokens","reserve":2,"max":100,"from":{"json":{"a":1}},"unknown":"reserve"}`
		bytesIn  = `{"meter":"tokens","reserve":2,"max":100,"from":{"json":{"a":1}},"unknown":{"bytes_in":0.25}}`
		bytesOut = `{"meter":"tokens","reserve":2,"max":100,"from":{"json":{"a":1}},"unknown":{"bytes_out":0.25}}`
	)
	known := func(n int64) cost.Figure { return cost.Figure{Units: n, Read: true, Known: true} }
	unknown := func(n int64, reason cost.Reason) cost.Figure {
		return cost.Figure{Units: n, Read: true, Reason: reason}
	}
	nothing := cost.Figure{}
	whole := func(status int) cost.End {
		return cost.End{Status: status, Whole: true, BytesIn: 41, BytesOut: 43}
	}
	cut := func(status int) cost.End { o := whole(status); o.Whole = false; return o }
	head := func(status int) cost.End { o := whole(status); o.Head = true; return o }
	for _, tc := range []struct {
		sentence string
		rule     string
		end      cost.End
		figure   cost.Figure
		units    int64
		reason   cost.Reason
	}{
		{"each forwarded request costs N", price, whole(200), nothing, 5, cost.None},
		{"a price is a figure: of a 4xx", price, whole(404), nothing, 5, cost.None},
		{"a price is a figure: of a 5xx that was cut", price, cut(502), nothing, 5, cost.None},
		{"a price needs no response", price, cut(0), nothing, 5, cost.None},
		{"a price of HEAD", price, head(200), nothing, 5, cost.None},

		{"the reserve becomes min(cost, max)", body, whole(200), known(70), 70, cost.None},
		{"min(cost, max)", body, whole(200), known(101), 100, cost.None},
		{"zero is zero", body, whole(200), known(0), 0, cost.None},
		{"zero of a header is zero", header, whole(200), known(0), 0, cost.None},
		{"missing is never zero", body, whole(200), nothing, 100, cost.Missing},
		{"a missing header is unknown", header, whole(200), nothing, 100, cost.Missing},
		{"optional fields alone, all absent, are 0", body, whole(200), cost.Figure{Known: true}, 0, cost.None},

		{"HEAD without one costs 0", header, head(200), nothing, 0, cost.None},
		{"204 without one costs 0", header, whole(204), nothing, 0, cost.None},
		{"304 without one costs 0", header, whole(304), nothing, 0, cost.None},
		{"HEAD with one costs that", header, head(200), known(7), 7, cost.None},
		{"304 with one costs that", header, whole(304), known(7), 7, cost.None},
		{"HEAD costs 0", body, head(200), nothing, 0, cost.None},
		{"204 costs 0", body, whole(204), nothing, 0, cost.None},
		{"304 costs 0", body, whole(304), nothing, 0, cost.None},
		{"HEAD costs 0 of requests, too", requests, head(200), nothing, 0, cost.None},
		{"HEAD that got no response is unknown", body, cost.End{Head: true}, nothing, 100, cost.Incomplete},

		{"not whole: the greater of what was read", reserve, cut(200), known(50), 50, cost.Incomplete},
		{"not whole: and unknown", reserve, cut(200), known(1), 2, cost.Incomplete},
		{"not whole: at most max", reserve, cut(200), known(101), 100, cost.Incomplete},
		{"hanging up saves nothing: a whole figure of a response that was cut", body, cut(200), known(1), 100, cost.Incomplete},
		{"a timeout is unknown", body, cut(0), nothing, 100, cost.Incomplete},
		{"unknown: max", body, whole(200), unknown(1, cost.Missing), 100, cost.Missing},
		{"unknown: reserve", reserve, whole(200), unknown(0, cost.NotANumber), 2, cost.NotANumber},
		{"unknown: bytes_in, rounded up", bytesIn, whole(200), unknown(0, cost.Negative), 11, cost.Negative},
		{"unknown: bytes_out, rounded up", bytesOut, whole(200), nothing, 11, cost.Missing},
		{"unknown: bytes_in below what was read", bytesIn, whole(200), unknown(12, cost.Missing), 12, cost.Missing},
		{"unknown: bytes at most max", bytesIn, cost.End{Status: 200, Whole: true, BytesIn: 1 << 60}, nothing, 100, cost.Missing},
		{"beyond 2^53 is unknown", reserve, whole(200), unknown(cost.MaxUnits, cost.TooLarge), 100, cost.TooLarge},

		{"a 4xx with a figure costs that", body, whole(400), known(7), 7, cost.None},
		{"a 5xx with a figure costs that", header, whole(500), known(7), 7, cost.None},
		{"a 4xx without a figure costs nothing", body, whole(404), nothing, 0, cost.None},
		{"a 5xx without a figure costs nothing", header, whole(503), nothing, 0, cost.None},
		{"a 4xx without a figure: requests cost their reserve", requests, whole(404), nothing, 2, cost.None},
		{"a 5xx without a figure: requests cost their reserve", requests, whole(500), nothing, 2, cost.None},
		{"a 5xx whose body cannot be read has no figure", body, whole(500), cost.Figure{Reason: cost.Invalid}, 0, cost.None},
		{"a 5xx that was cut without a figure costs nothing", body, cut(500), nothing, 0, cost.None},
		{"a 5xx that was cut with a figure is unknown", reserve, cut(500), known(7), 7, cost.Incomplete},
		{"a 4xx with a figure that is no number is unknown", reserve, whole(400), unknown(0, cost.NotANumber), 2, cost.NotANumber},
		{"a 4xx with optional fields alone, all absent, has none", requests, whole(400), cost.Figure{Known: true}, 2, cost.None},
	} {
		rules := mustRead(t, `[`+tc.rule+`]`)
		units, reason := rules[0].Settle(tc.end, tc.figure)
		if units != tc.units || reason != tc.reason {
			t.Errorf("%s: got %d units and reason %q, want %d and %q", tc.sentence, units, reason, tc.units, tc.reason)
		}
	}
}

// Guarantee: whatever the end is, a request costs 0 to max; an unknown cost is never below what unknown says, nor below
// what was read, and a known one is the figure.
func TestSettleBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRule(t)
		f := cost.Figure{Units: rapid.Int64Range(0, cost.MaxUnits).Draw(t, "figure"), Read: rapid.Bool().Draw(t, "read"), Known: rapid.Bool().Draw(t, "known")}
		o := cost.End{
			Status: rapid.SampledFrom([]int{0, 200, 204, 304, 400, 500}).Draw(t, "status"), Head: rapid.Bool().Draw(t, "head"), Whole: rapid.Bool().Draw(t, "whole"),
			BytesIn: rapid.Int64Range(0, 1<<62).Draw(t, "in"), BytesOut: rapid.Int64Range(0, 1<<62).Draw(t, "out"),
		}
		units, reason := r.Settle(o, f)
		if units < 0 || units > r.Max {
			t.Fatalf("got %d units, want 0 to %d", units, r.Max)
		}
		if reason == cost.None {
			return
		}
		least := int64(0)
		switch r.Unknown.Fallback {
		case cost.UnknownMax:
			least = r.Max
		case cost.UnknownReserve:
			least = r.Reserve
		case cost.UnknownBytesIn:
			least = roundedUp(o.BytesIn, r.Unknown.Weight)
		case cost.UnknownBytesOut:
			least = roundedUp(o.BytesOut, r.Unknown.Weight)
		}
		if want := min(r.Max, max(least, f.Units)); units != want {
			t.Fatalf("got %d units for an unknown cost, want %d", units, want)
		}
	})
}

func drawRule(t *rapid.T) cost.Rule {
	for {
		if rules := drawRules(t); len(rules) > 0 {
			return rules[0]
		}
	}
}

// roundedUp returns n × w, rounded up, and at most MaxUnits.
func roundedUp(n int64, w cost.Weight) int64 {
	product := new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(w)))
	whole, rest := new(big.Int).QuoRem(product, big.NewInt(1_000_000), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if whole.Cmp(big.NewInt(cost.MaxUnits)) > 0 {
		return cost.MaxUnits
	}
	return whole.Int64()
}

// Guarantee: a header is a decimal number, rounded up; anything else makes the cost unknown.
func TestHeaderFigure(t *testing.T) {
	for value, want := range map[string]cost.Figure{
		"0": {Known: true}, "-0": {Known: true}, "0.0": {Known: true}, "7": {Units: 7, Known: true}, " 7\t": {Units: 7, Known: true},
		"7.0": {Units: 7, Known: true}, "7.000000000000000000001": {Units: 8, Known: true}, "0.1": {Units: 1, Known: true}, "1e-400": {Units: 1, Known: true},
		"1e2": {Units: 100, Known: true}, "12.5E+1": {Units: 125, Known: true}, "007": {Units: 7, Known: true}, "1e-2": {Units: 1, Known: true}, "0e99999999999999999999": {Known: true},
		"9007199254740991": {Units: cost.MaxUnits, Known: true}, "9007199254740990.5": {Units: cost.MaxUnits, Known: true},
		"9007199254740992": {Units: cost.MaxUnits, Reason: cost.TooLarge}, "9007199254740991.1": {Units: cost.MaxUnits, Reason: cost.TooLarge}, "1e99999999999999999999": {Units: cost.MaxUnits, Reason: cost.TooLarge},
		"-1": {Reason: cost.Negative}, "-0.0001": {Reason: cost.Negative}, "-1e99": {Reason: cost.Negative},
		"": {Reason: cost.NotANumber}, "x": {Reason: cost.NotANumber}, "1, 2": {Reason: cost.NotANumber}, "1.": {Reason: cost.NotANumber}, ".1": {Reason: cost.NotANumber}, "+1": {Reason: cost.NotANumber},
		"0x1": {Reason: cost.NotANumber}, "1_0": {Reason: cost.NotANumber}, "NaN": {Reason: cost.NotANumber}, "Infinity": {Reason: cost.NotANumber}, "1e": {Reason: cost.NotANumber}, "1e+": {Reason: cost.NotANumber}, "1 2": {Reason: cost.NotANumber}, "--1": {Reason: cost.NotANumber},
		strings.Repeat("1", 1025): {Reason: cost.TooLong},
	} {
		want.Read = true
		if got := cost.HeaderFigure(value); got != want {
			t.Errorf("%.40q: got %+v, want %+v", value, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`-?[0-9]{1,18}(\.[0-9]{1,20})?(e[+-]?[0-9]{1,2})?`).Draw(t, "value")
		exact, ok := new(big.Rat).SetString(value)
		if !ok {
			t.Fatal(value)
		}
		got := cost.HeaderFigure(value)
		up := new(big.Int).Add(exact.Num(), new(big.Int).Sub(exact.Denom(), big.NewInt(1)))
		up.Quo(up, exact.Denom())
		want := cost.Figure{Read: true, Known: true}
		switch {
		case exact.Sign() < 0:
			want = cost.Figure{Read: true, Reason: cost.Negative}
		case up.Cmp(big.NewInt(cost.MaxUnits)) > 0:
			want = cost.Figure{Read: true, Reason: cost.TooLarge, Units: cost.MaxUnits}
		default:
			want.Units = up.Int64()
		}
		if got != want {
			t.Fatalf("%s: got %+v, want %+v", value, got, want)
		}
	})
}

// Guarantee: each reason has a name of its own.
func TestReasons(t *testing.T) {
	want := "incomplete encoding too_long invalid not_a_number negative too_large missing"
	if got := strings.Trim(fmt.Sprint(cost.Reasons()), "[]"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if cost.None.String() != "" {
		t.Error("None has a name")
	}
}
