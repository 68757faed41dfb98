package cost_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// page is the example of plans.md, section 5. In braces, the YAML of the document package wants a name with ? in quotes.
const page = `
- meter: tokens
  reserve: 2000                 # taken before forwarding; default 1
  max: 16000                    # no request counts for more
  from:
    json: {usage.prompt_tokens: 1, usage.completion_tokens: 4, usage.prompt_tokens_details.cached_tokens?: -0.5}
    by: model                   # optional: other weights for a value of this field; no match: json
    prices: {gpt-large: {usage.prompt_tokens: 5, usage.completion_tokens: 15}}
  unknown: {bytes_out: 0.25}    # default: max
`

// read reads rules in YAML or JSON.
func read(text string) (cost.Rules, error) {
	n, err := document.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	return cost.Read(n)
}

func mustRead(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, text string) cost.Rules {
	t.Helper()
	rules, err := read(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return rules
}

// Guarantee: the example of the contract is read as it says.
func TestExample(t *testing.T) {
	got := mustRead(t, page)
	want := cost.Rules{{
		Meter: "tokens", Reserve: 2000, Max: 16000,
		From: cost.From{
			Source: cost.FromJSON,
			JSON:   []cost.Field{{"usage.prompt_tokens", 1_000_000}, {"usage.completion_tokens", 4_000_000}, {"usage.prompt_tokens_details.cached_tokens?", -500_000}},
			By:     "model",
			Prices: []cost.Price{{"gpt-large", []cost.Field{{"usage.prompt_tokens", 5_000_000}, {"usage.completion_tokens", 15_000_000}}}},
		},
		Unknown: cost.Unknown{Fallback: cost.UnknownBytesOut, Weight: 250_000},
	}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Guarantee: each rule has its defaults, and the JSON form says them.
func TestForm(t *testing.T) {
	for in, want := range map[string]string{
		`[]`:   `[]`,
		`null`: `[]`,
		`[{"meter":"requests","from":{"request":5}}]`:                                                              `[{"meter":"requests","reserve":5,"max":5,"from":{"request":5}}]`,
		`[{"meter":"requests","from":{"request":0}}]`:                                                              `[{"meter":"requests","reserve":0,"max":0,"from":{"request":0}}]`,
		`[{"meter":"c","reserve":2,"max":9,"from":{"request":5,"header":null}}]`:                                   `[{"meter":"c","reserve":2,"max":9,"from":{"request":5}}]`,
		`[{"meter":"c","max":9,"from":{"header":"X-Cost"}}]`:                                                       `[{"meter":"c","reserve":1,"max":9,"from":{"header":"X-Cost"}}]`,
		`[{"unknown":"max","reserve":0,"max":9e2,"from":{"expose":true,"header":"X-Cost"},"meter":"c"}]`:           `[{"meter":"c","reserve":0,"max":900,"from":{"header":"X-Cost","expose":true}}]`,
		`[{"meter":"c","max":9,"from":{"header":"X-Cost"},"unknown":{"bytes_in":0.000001}}]`:                       `[{"meter":"c","reserve":1,"max":9,"from":{"header":"X-Cost"},"unknown":{"bytes_in":0.000001}}]`,
		`[{"meter":"c","max":9,"from":{"json":{"b":-1.50,"a|b.c?":1e6}},"unknown":"reserve"}]`:                     `[{"meter":"c","reserve":1,"max":9,"from":{"json":{"b":-1.5,"a|b.c?":1000000}},"unknown":"reserve"}]`,
		`[{"meter":"c","max":9007199254740991,"from":{"json":{"b":2},"by":"m|n","prices":{"a.b \"<":{"c":0.1}}}}]`: `[{"meter":"c","reserve":1,"max":9007199254740991,"from":{"json":{"b":2},"by":"m|n","prices":{"a.b \"\u003c":{"c":0.1}}}}]`,
	} {
		rules, err := read(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		got := string(rules.AppendJSON(nil))
		if got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
		again := mustRead(t, got)
		if string(again.AppendJSON(nil)) != want || !again.Equal(rules) || !rules.Equal(again.Clone()) {
			t.Errorf("%s: got %+v after a round trip, want %+v", in, again, rules)
		}
	}
}

// Guarantee: rules that can be read keep their meaning over JSON, whatever they are, and Equal tells different ones apart.
func TestFormRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t)
		if err := rules.Validate(); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(rules)
		if err != nil {
			t.Fatal(err)
		}
		var again cost.Rules
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if fmt.Sprint(again) != fmt.Sprint(rules) || !again.Equal(rules) {
			t.Fatalf("got %+v, want %+v", again, rules)
		}
		block := rules.YAML(2)
		fromYAML := cost.Rules{}
		if len(rules) > 0 {
			fromYAML = mustRead(t, block)
		}
		if fmt.Sprint(fromYAML) != fmt.Sprint(rules) {
			t.Fatalf("%s\nis %+v, want %+v", block, fromYAML, rules)
		}
		slices.Reverse(again)
		for i := range again {
			slices.Reverse(again[i].From.JSON)
			slices.Reverse(again[i].From.Prices)
		}
		if !again.Equal(rules) {
			t.Fatalf("another order: %+v is not equal to %+v", again, rules)
		}
		if len(again) == 0 {
			return
		}
		again[0].Reserve++
		if again.Equal(rules) || rules.Equal(again) {
			t.Fatalf("%+v is equal to %+v", again, rules)
		}
	})
}

func drawRules(t *rapid.T) cost.Rules {
	rules := make(cost.Rules, rapid.IntRange(0, cost.MaxRules).Draw(t, "rules"))
	for i := range rules {
		r := &rules[i]
		r.Meter = fmt.Sprintf("m_%d", i)
		r.Max = rapid.Int64Range(1, cost.MaxUnits).Draw(t, "max")
		r.Reserve = rapid.Int64Range(0, r.Max).Draw(t, "reserve")
		r.From.Source = rapid.SampledFrom([]cost.Source{cost.FromRequest, cost.FromHeader, cost.FromJSON}).Draw(t, "source")
		switch r.From.Source {
		case cost.FromRequest:
			r.From.Price = rapid.Int64Range(0, r.Max).Draw(t, "price")
			continue
		case cost.FromHeader:
			r.From.Header, r.From.Expose = rapid.SampledFrom([]string{"X-Cost", "Null", "*&!'|", "1e5", "No"}).Draw(t, "header"), rapid.Bool().Draw(t, "expose")
		default:
			r.From.JSON = drawFields(t)
			for j := range rapid.IntRange(0, 3).Draw(t, "prices") {
				r.From.By = "a|é.b"
				r.From.Prices = append(r.From.Prices, cost.Price{Value: fmt.Sprintf(rapid.SampledFrom([]string{"v%d", "%d", "true", "a, b: %d}", "\u2028\"%d"}).Draw(t, "value"), j), Fields: drawFields(t)})
			}
		}
		r.Unknown.Fallback = cost.Fallback(rapid.IntRange(0, 3).Draw(t, "unknown"))
		if r.Unknown.Fallback >= cost.UnknownBytesIn {
			r.Unknown.Weight = rapid.Custom(func(t *rapid.T) cost.Weight {
				return cost.Weight(rapid.Int64Range(1, int64(cost.MaxWeight)).Draw(t, "weight"))
			}).Draw(t, "weight")
		}
	}
	return rules
}

func drawFields(t *rapid.T) []cost.Field {
	fields := make([]cost.Field, rapid.IntRange(1, 4).Draw(t, "fields"))
	for i := range fields {
		w := rapid.Int64Range(-int64(cost.MaxWeight), int64(cost.MaxWeight)).Draw(t, "weight")
		fields[i] = cost.Field{Name: rapid.SampledFrom([]string{"a%d", "a%d.b", "a%d?", "ü%d|x.y?", "a%d \"q\"", "%d", "n%d: {x}, #", "-%d", "no%d", "x%d,y", "*%d", "x\u2028%d", "1e%d", "~%d", "'%d\\"}).Draw(t, "name"), Weight: cost.Weight(w)}
		fields[i].Name = fmt.Sprintf(fields[i].Name, i)
	}
	return fields
}

// Guarantee: rules that cannot work are refused, all mistakes at once, each with its field.
func TestRefusedRules(t *testing.T) {
	json := func(s string) string { return `{"meter":"c","max":9,"from":{"json":{"a":1}}` + s + `}` }
	long := strings.Repeat("x", 300)
	var many, prices []string
	for i := range 65 {
		many = append(many, fmt.Sprintf(`"f%d":1`, i))
		prices = append(prices, fmt.Sprintf(`"v%d":{"a":1}`, i))
	}
	var wide []string // more than 64 paths
	for i := range 13 {
		wide = append(wide, fmt.Sprintf(`"a%d|b%d|c%d|d%d|e%d":1`, i, i, i, i, i))
	}
	var big []string
	for i := range 64 {
		big = append(big, fmt.Sprintf(`"v%d%s":{"abcdef":1}`, i, strings.Repeat("y", 250)))
	}
	for _, tc := range []struct {
		text   string
		fields string
	}{
		{`{}`, ""},
		{`[` + json("") + `,` + json("") + `]`, "[1].meter"},
		{`[1]`, "[0]"},
		{`[{}]`, "[0].meter [0].from"},
		{`[{"meter":null,"max":1,"from":null}]`, "[0].meter [0].from"},
		{`[{"meter":"c","max":"9","from":{"json":{"a":1}},"Max":1}]`, "[0].max [0].Max"},
		{`[{"meter":"bytes_in","from":{"request":1}}]`, "[0].meter"},
		{`[{"meter":"bytes_out","from":{"request":1}}]`, "[0].meter"},
		{`[{"meter":"Tokens","from":{"request":1}}]`, "[0].meter"},
		{`[{"meter":"` + long + `","from":{"request":1}}]`, "[0].meter"},
		{`[{"meter":7,"from":{"request":1}}]`, "[0].meter"},
		{`[{"meter":"c","from":{"request":-1}}]`, "[0].from.request"},
		{`[{"meter":"c","from":{"request":1.5}}]`, "[0].from.request"},
		{`[{"meter":"c","from":{"request":9007199254740992}}]`, "[0].from.request"},
		{`[{"meter":"c","max":4,"from":{"request":5}}]`, "[0].max"},
		{`[{"meter":"c","reserve":6,"from":{"request":5}}]`, "[0].reserve"},
		{`[{"meter":"c","from":{"request":5},"unknown":"reserve"}]`, "[0].unknown"},
		{`[{"meter":"c","from":{"request":5,"header":"X"}}]`, "[0].from"},
		{`[{"meter":"c","from":{"request":5,"expose":true,"by":"a","prices":{"b":{"c":1}}}}]`, "[0].from.expose [0].from.by [0].from.prices"},
		{`[{"meter":"c","from":{}}]`, "[0].from"},
		{`[{"meter":"c","max":1,"from":[]}]`, "[0].from"},
		{`[{"meter":"c","from":{"header":"X-Cost"}}]`, "[0].max"},
		{`[{"meter":"c","from":{"json":{"a":1}}}]`, "[0].max"},
		{`[{"meter":"c","max":0,"from":{"json":{"a":1}}}]`, "[0].max"},
		{`[{"meter":"c","max":9007199254740992,"from":{"json":{"a":1}}}]`, "[0].max"},
		{`[{"meter":"c","max":1,"reserve":-1,"from":{"header":"X-Cost"}}]`, "[0].reserve"},
		{`[{"meter":"c","max":1,"reserve":2,"from":{"header":"X-Cost"}}]`, "[0].reserve"},
		{`[{"meter":"c","max":1,"from":{"header":"X Cost"}}]`, "[0].from.header"},
		{`[{"meter":"c","max":1,"from":{"header":"content-length"}}]`, "[0].from.header"},
		{`[{"meter":"c","max":1,"from":{"header":"X-RateLimit-Remaining"}}]`, "[0].from.header"},
		{`[{"meter":"c","max":1,"from":{"header":"RateLimit"}}]`, "[0].from.header"},
		{`[{"meter":"c","max":1,"from":{"header":"X-Cost","expose":"yes","by":"a"}}]`, "[0].from.expose [0].from.by"},
		{`[` + json(`,"unknown":"min"`) + `]`, "[0].unknown"},
		{`[` + json(`,"unknown":{"bytes_in":1,"bytes_out":1}`) + `]`, "[0].unknown"},
		{`[` + json(`,"unknown":{"bytes_out":0}`) + `]`, "[0].unknown.bytes_out"},
		{`[` + json(`,"unknown":{"bytes_in":-1}`) + `]`, "[0].unknown.bytes_in"},
		{`[` + json(`,"unknown":{"bytes_in":"1"}`) + `]`, "[0].unknown.bytes_in"},
		{`[{"meter":"c","max":1,"from":{"json":{}}}]`, "[0].from.json"},
		{`[{"meter":"c","max":1,"from":{"json":["a"]}}]`, "[0].from.json"},
		{`[{"meter":"c","max":1,"from":{"json":{"a":"1","b":0.0000001,"c":1000000.1,"d":-1e7}}}]`, "[0].from.json.a [0].from.json.b [0].from.json.c [0].from.json.d"},
		{`[{"meter":"c","max":1,"from":{"json":{"":1,"?":1,"a..b":1,"a.":1,".a":1,"a||b":1,"a?|b":1," a":1,"a. b":1,"a\n":1}}}]`, "[0].from.json [0].from.json.? [0].from.json.a..b [0].from.json.a. [0].from.json..a [0].from.json.a||b [0].from.json.a?|b [0].from.json. a [0].from.json.a. b [0].from.json.a\n"},
		{`[{"meter":"c","max":1,"from":{"json":{"a` + strings.Repeat(".a", 64) + `":1}}}]`, "[0].from.json.a" + strings.Repeat(".a", 64)},
		{`[{"meter":"c","max":1,"from":{"json":{"` + long + `":1}}}]`, "[0].from.json." + long[:255] + "…"},
		{`[{"meter":"c","max":1,"from":{"json":{` + strings.Join(many[:17], ",") + `}}}]`, "[0].from.json"},
		{`[{"meter":"c","max":1,"from":{"json":{"a":1},"by":"m"}}]`, "[0].from.prices"},
		{`[{"meter":"c","max":1,"from":{"json":{"a":1},"prices":{"b":{"a":1}}}}]`, "[0].from.by"},
		{`[{"meter":"c","max":1,"from":{"json":{"a":1},"by":"m?","prices":{"b":{}}}}]`, "[0].from.by [0].from.prices.b"},
		{`[{"meter":"c","max":1,"from":{"json":{"a":1},"by":"m","prices":{"":{"a":1}}}}]`, "[0].from.prices"},
		{`[{"meter":"c","max":1,"from":{"json":{"a":1},"by":"m","prices":{"a\u001b":{"a":1}}}}]`, "[0].from.prices.a\x1b"},
		{`[{"meter":"c","max":1,"from":{"json":{"${env:A}":1},"by":"${env:B}","prices":{"${env:C}":{"a.${env:D}":1}}}}]`, "[0].from.json.${env:A} [0].from.by [0].from.prices.${env:C} [0].from.prices.${env:C}.a.${env:D}"},
		{`[{"meter":"c","max":1,"from":{"json":{"a|b|c|d|e|f|g|h|i":1}}}]`, "[0].from.json.a|b|c|d|e|f|g|h|i"},
		{`[{"meter":"c","max":1,"from":{"json":{` + strings.Join(wide, ",") + `}}}]`, "[0].from"},
		{`[{"meter":"c","max":1,"from":{"json":{"a":1},"by":"m","prices":{` + strings.Join(prices, ",") + `}}}]`, "[0].from.prices"},
		{`[{"meter":"c","max":1,"from":{"json":{"a":1},"by":"m","prices":{` + strings.Join(big, ",") + `}}}]`, "[0].from"},
		{`[{"meter":"a","from":{"request":1}},{"meter":"b","from":{"request":1}},{"meter":"c","from":{"request":1}},{"meter":"d","from":{"request":1}},{"meter":"e","from":{"request":1}}]`, ""},
	} {
		_, err := read(tc.text)
		if fault.CodeOf(err) != fault.ValidationFailed {
			t.Errorf("%.200s: got %v, want a validation error", tc.text, err)
			continue
		}
		var fields []string
		for _, p := range fault.ProblemsOf(err) {
			fields = append(fields, p.Field)
			if p.Message == "" {
				t.Errorf("%.200s: no message", tc.text)
			}
		}
		if got := strings.Join(fields, " "); got != tc.fields {
			t.Errorf("%.200s: got problems of %q, want %q", tc.text, got, tc.fields)
		}
	}
	for _, text := range []string{
		`[{"meter":"c","max":1,"from":{"json":{` + strings.Join(many[:16], ",") + `}}}]`,
		`[{"meter":"c","max":1,"from":{"json":{"a":1},"by":"m","prices":{` + strings.Join(prices[:64], ",") + `}}}]`,
		`[{"meter":"c","max":1,"from":{"json":{"a` + strings.Repeat(".a", 63) + `":1}}}]`,
	} {
		if _, err := read(text); err != nil {
			t.Errorf("%.100s: %v", text, err)
		}
	}
}

// Guarantee: a weight is read and written exactly.
func TestWeights(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "1": "1", "0.5": "0.5", "-0.5": "-0.5", "0.000001": "0.000001", "1e-6": "0.000001", "-1e6": "-1000000", "1000000": "1000000",
		"2.50": "2.5", "1.0000000": "1", "12.345678": "12.345678", "0.1e1": "1", "100e-2": "1",
		"": "", "1.": "", ".5": "", "+1": "", "1e": "", "1000000.000001": "", "1000001": "", "0.0000001": "", "1e-7": "", "1e99999999999": "", "NaN": "", "0x1": "", "1_0": "", " 1": "", "1 ": "", "--1": "",
	} {
		w, err := cost.ParseWeight(text)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q: got %s, want an error", text, w)
		case want != "" && (err != nil || w.String() != want):
			t.Errorf("%q: got %s and %v, want %s", text, w, err, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		w := cost.Weight(rapid.Int64Range(-int64(cost.MaxWeight), int64(cost.MaxWeight)).Draw(t, "weight"))
		again, err := cost.ParseWeight(w.String())
		exact, ok := new(big.Rat).SetString(w.String())
		if err != nil || again != w || !ok || exact.Cmp(big.NewRat(int64(w), 1_000_000)) != 0 {
			t.Fatalf("%d is %q, which is read as %d: %v", w, w.String(), again, err)
		}
	})
}

// Guarantee: the YAML of rules is what a person would write: without defaults, names in quotes only where YAML needs them.
func TestYAML(t *testing.T) {
	rules := mustRead(t, page+"- {meter: requests, from: {request: 3}}\n- {meter: x, max: 5, reserve: 1, from: {header: X-Cost, expose: true}, unknown: reserve}\n")
	want := `  - meter: tokens
    reserve: 2000
    max: 16000
    from:
      json: {usage.prompt_tokens: 1, usage.completion_tokens: 4, "usage.prompt_tokens_details.cached_tokens?": -0.5}
      by: model
      prices:
        gpt-large: {usage.prompt_tokens: 5, usage.completion_tokens: 15}
    unknown: {bytes_out: 0.25}
  - meter: requests
    from: {request: 3}
  - meter: x
    max: 5
    from: {header: X-Cost, expose: true}
    unknown: reserve
`
	if got := rules.YAML(2); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Guarantee: rules of one document that have the same text, whether by an alias or written twice, share their memory; null and
// [] are none; and what is wrong with one is said at each of its aliases.
func TestCache(t *testing.T) {
	n, err := document.Parse([]byte("- &a [{meter: t, from: {request: 1}}]\n- *a\n- [{from: {request: 1}, max: 1, meter: t}]\n- [{meter: t, from: {request: 2}}]\n- []\n- null\n- &b [{meter: T, from: {request: 1}}]\n- *b\n"))
	if err != nil {
		t.Fatal(err)
	}
	var c cost.Cache
	var got []cost.Rules
	for i := range n.Nodes {
		rules, err := c.Read(&n.Nodes[i])
		if (err != nil) != (i >= 6) {
			t.Errorf("%d: got %v", i, err)
		}
		got = append(got, rules)
	}
	if &got[0][0] != &got[1][0] || &got[0][0] != &got[2][0] {
		t.Error("rules with the same text do not share memory")
	}
	if got[3][0].Max != 2 || got[4] != nil || got[5] != nil {
		t.Errorf("got %v", got)
	}
}

// Guarantee: mistakes in a file get the positions of what is wrong.
func TestPositionsOfMistakes(t *testing.T) {
	n, err := document.Parse([]byte("- meter: tokens\n  max: 5\n  from:\n    json:\n      usage.a: 1\n      usage..b: 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = cost.Read(n)
	problems := fault.ProblemsOf(document.WithPosition(err, n, "cost"))
	if len(problems) != 1 || problems[0].Line != 6 || !strings.HasPrefix(problems[0].Message, "line 6, column 17: has an empty segment") {
		t.Errorf("got %+v, want one problem in line 6", problems)
	}
}
