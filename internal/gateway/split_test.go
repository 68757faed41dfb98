package gateway_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: a percentage with at most two decimals is read as it is written, and written with as few decimals as it needs; any
// other text is none.
func TestPercent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := gateway.Percent(rapid.Int64Range(0, 10_000).Draw(t, "percent"))
		if got := gateway.ParsePercent(p.String()); got != p {
			t.Fatalf("%d is written %s, which is read as %d", p, p, got)
		}
	})
	for text, want := range map[string]gateway.Percent{
		"0": 0, "5": 500, "5.0": 500, "5.25": 525, "0.01": 1, "100": 10_000, "101": 10_100,
		"": -1, "-1": -1, "5.001": -1, "5.": -1, ".5": -1, "1e1": -1, "0x5": -1, "5%": -1, "1_0": -1, "99999999999": -1,
	} {
		if got := gateway.ParsePercent(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

// Guarantee: a split with any entries is encoded in a file, and in the store, as it was.
func TestSplitsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		split := rapid.SliceOfN(splitEntry(), 0, 5).Draw(t, "split")
		for i := range split {
			if split[i].Weight != nil && i > 0 {
				split[i].Weight, split[i].Random, split[i].When = nil, false, &gateway.SplitWhen{Owner: []string{"a"}}
			}
		}
		d := &gateway.Document{Routes: []gateway.RouteSpec{{Path: "/a", Methods: []string{"GET"}, Split: split}}}
		if len(split) > 0 {
			d.Gateway.Split = gateway.Member[gateway.Split]{Present: true, Value: split}
		}
		text := d.Encode()
		got, err := gateway.ParseDocument(text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if !reflect.DeepEqual(got.Routes[0].Split, gateway.Split(split)) || len(split) > 0 && !reflect.DeepEqual(got.Gateway.Split.Value, gateway.Split(split)) {
			t.Fatalf("got %+v\nwant %+v\nfrom\n%s", got, split, text)
		}
		wantLine(t, &d.Routes[0])
		var stored gateway.Split
		if err := json.Unmarshal(gateway.Split(split).AppendJSON(nil), &stored); err != nil || !stored.Equal(split) {
			t.Fatalf("got stored %+v, %v; want %+v", stored, err, split)
		}
	})
}

func splitEntry() *rapid.Generator[gateway.SplitEntry] {
	return rapid.Custom(func(t *rapid.T) gateway.SplitEntry {
		e := gateway.SplitEntry{Upstream: rapid.StringMatching(`[a-z0-9_-]{1,64}`).Draw(t, "upstream"), Fallback: rapid.Bool().Draw(t, "fallback")}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			e.Weight, e.Random = new(gateway.Percent(rapid.Int64Range(0, 10_000).Draw(t, "weight"))), rapid.Bool().Draw(t, "random")
		case 1:
			e.When = &gateway.SplitWhen{Header: map[string]string{"X-" + rapid.StringMatching(`[A-Za-z0-9!#$%&'*+.^_|~-]{1,20}`).Draw(t, "header"): rapid.StringMatching(`[!-~]([ -~]{0,20}[!-~])?`).Draw(t, "value")}}
		case 2:
			e.When = &gateway.SplitWhen{Key: []string{id.New(id.Key), id.New(id.Key)}}
		default:
			e.When = &gateway.SplitWhen{Owner: []string{rapid.StringMatching(`[!-~]{1,20}`).Draw(t, "owner")}}
		}
		return e
	})
}

// Guarantee: the entries of a split, what they name, and the splits of a gateway's routes are bounded.
func TestSplitsAreBounded(t *testing.T) {
	owners := func(n, length int) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("%0*d", length, i)
		}
		return list
	}
	entries := func(n int, names []string) gateway.Split {
		s := make(gateway.Split, n)
		for i := range s {
			s[i] = gateway.SplitEntry{Upstream: "next", When: &gateway.SplitWhen{Owner: names}}
		}
		return s
	}
	header := func(n int) gateway.Split {
		return gateway.Split{{Upstream: "next", When: &gateway.SplitWhen{Header: map[string]string{"X-A": strings.Repeat("x", n)}}}}
	}
	for _, c := range []struct {
		name  string
		split gateway.Split
		field string // "-" for none
	}{
		{"16 entries", entries(16, owners(1, 1)), "-"},
		{"17 entries", entries(17, owners(1, 1)), ""},
		{"100 owners", entries(1, owners(100, 3)), "-"},
		{"101 owners", entries(1, owners(101, 3)), "[0].when.owner"},
		{"a header of 256 bytes", header(256), "-"},
		{"a header of 257 bytes", header(257), "[0].when.header.X-A"},
		{"60 KiB", entries(2, owners(100, 255)), "-"},
		{"more than 64 KiB", entries(3, owners(100, 255)), ""},
	} {
		problems := fault.ProblemsOf(c.split.Check())
		if len(problems) == 0 && c.field != "-" || len(problems) > 0 && problems[0].Field != c.field {
			t.Errorf("%s: got %+v, want a problem of %q", c.name, problems, c.field)
		}
	}
	table := func(n int, split func(i int) gateway.Split) []gateway.RowProblem {
		routes := make([]gateway.RouteSpec, n)
		for i := range routes {
			routes[i] = gateway.RouteSpec{Path: fmt.Sprintf("/%d", i), Methods: []string{"GET"}, Split: split(i)}
		}
		return gateway.CheckTable(routes)
	}
	shared := entries(2, owners(100, 255))
	if bad := table(2_000, func(int) gateway.Split { return shared }); len(bad) > 0 {
		t.Errorf("got %+v for routes that share a split", bad)
	}
	weight := func(i int) gateway.Split {
		return gateway.Split{{Upstream: "next", Weight: new(gateway.Percent(i))}}
	}
	for name, bad := range map[string][]gateway.RowProblem{
		"1,001 splits": table(1_001, weight),
		"2 MiB":        table(40, func(i int) gateway.Split { return append(entries(2, owners(100, 255)), weight(i)...) }),
		"1,001 keys": table(21, func(i int) gateway.Split {
			keys := make([]string, 48)
			for k := range keys {
				keys[k] = id.New(id.Key)
			}
			return gateway.Split{{Upstream: "next", When: &gateway.SplitWhen{Key: keys}}}
		}),
	} {
		if len(bad) == 0 || bad[0].Field != "split" {
			t.Errorf("%s: got %+v, want a problem of split", name, bad)
		}
	}
}
