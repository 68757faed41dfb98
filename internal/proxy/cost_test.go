package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/ratelimit"
)

// programOf compiles the costs of a route.
func programOf(t testing.TB, text string) *cost.Program {
	t.Helper()
	n, err := document.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := cost.Read(n)
	if err != nil {
		t.Fatal(err)
	}
	return cost.Compile(rules)
}

// costly is a response of a service with a cost in each form.
type costly struct {
	text   []byte
	head   http1.Response
	pieces [][]byte
}

func newCostly(t testing.TB, contentType string, pieces ...[]byte) *costly {
	t.Helper()
	c := &costly{text: []byte("HTTP/1.1 200 OK\r\nContent-Type: " + contentType + "\r\nX-Cost: 17\r\nTransfer-Encoding: chunked\r\n\r\n"), pieces: pieces}
	var p http1.ResponseParser
	if done, err := p.Parse(c.text, &c.head); err != nil || !done {
		t.Fatal(done, err)
	}
	return c
}

// settle reads the response as an engine does, and returns the text of its costs.
func (r *costly) settle(p *cost.Program, used *ratelimit.Used) *costs {
	c := newCosts(p)
	c.readHead(r.text, &r.head)
	for _, piece := range r.pieces {
		c.read(piece)
	}
	c.readEnd(nil, nil, nil)
	c.settle(used, false, 0, 0)
	return c
}

// completion is a response of 2 KB with its usage at the end.
func completion() []byte {
	return []byte(`{"choices": [{"message": {"content": "` + strings.Repeat("The quick brown fox. ", 90) + `"}}], "usage": {"prompt_tokens": 1000, "completion_tokens": 51}}`)
}

// chunks are 200 events, the last but one with the usage.
func chunks() [][]byte {
	list := make([][]byte, 200)
	for i := range list {
		usage := "null"
		if i == len(list)-2 {
			usage = `{"prompt_tokens": 1000, "completion_tokens": 51}`
		}
		list[i] = fmt.Appendf(nil, `data: {"id": "chatcmpl-1", "choices": [{"delta": {"content": " fox"}}], "usage": %s}`+"\n\n", usage)
	}
	list[len(list)-1] = []byte("data: [DONE]\n\n")
	return list
}

const costOfTokens = `[{meter: tokens, max: 100000, from: {json: {usage.prompt_tokens: 1, usage.completion_tokens: 4}}}, {meter: cents, max: 100, from: {header: x-cost}}]`

// Guarantee: the body of a response is read whatever the names of the fields, also if no filter of events pays for them.
func TestFieldsWithoutAFilterAreRead(t *testing.T) {
	many := make([]string, cost.MaxFields)
	for i := range many {
		many[i] = fmt.Sprintf("f%c%d: 1", 'a'+i, i)
	}
	for fields, body := range map[string]string{
		"a: 1, b: 1, c: 1, d: 1": `{"a": 1, "b": 2, "c": 3, "d": 4}`,
		"x: 2, y: 1, z: 1, q: 1": `{"x": 1, "y": 2, "z": 3, "q": 3}`,
		strings.Join(many, ", ") + "}}}, {meter: more, max: 9, from: {json: {p.u: 1, p.v: 1, p.w: 1, p.x: 1": `{"fa0": 4, "fb1": 6}`,
	} {
		for contentType, text := range map[string]string{"application/json": body, "text/event-stream": "data: " + body + "\n\n"} {
			var used ratelimit.Used
			p := programOf(t, "[{meter: tokens, max: 100, from: {json: {"+fields+"}}}]")
			newCostly(t, contentType, []byte(text)).settle(p, &used)
			if !p.ReadsBody() || used[ratelimit.UseCost] != 10 && len(p.Rules()) == 1 {
				t.Errorf("%s with {%.40s}: got %d tokens, want 10", contentType, fields, used[ratelimit.UseCost])
			}
		}
	}
}

// Guarantee: the longest costs fit into an access record, and are read back from it.
func TestLongestCostsAreRecorded(t *testing.T) {
	var rules []string
	for i := range cost.MaxRules {
		var fields []string
		for j := range cost.MaxFields {
			fields = append(fields, fmt.Sprintf("%s%d: 999999.999999", strings.Repeat("a", 100), j))
		}
		rules = append(rules, fmt.Sprintf("{meter: %s, reserve: %d, max: %d, from: {json: {%s}}}", strings.Repeat(string(rune('a'+i)), 32), int64(cost.MaxUnits), int64(cost.MaxUnits), strings.Join(fields, ", ")))
	}
	var used ratelimit.Used
	c := newCostly(t, "application/json", []byte("{")).settle(programOf(t, "["+strings.Join(rules, ", ")+"]"), &used)
	all := slices.Collect(accesslog.Costs(c.record()))
	if len(c.record()) > accesslog.MaxCost || len(all) != cost.MaxRules {
		t.Fatalf("got %d costs in %d bytes, want %d in at most %d", len(all), len(c.record()), cost.MaxRules, accesslog.MaxCost)
	}
	for _, one := range all {
		if one.Units != cost.MaxUnits || one.Reserved != cost.MaxUnits || one.Unknown != "invalid" || len(one.Meter) != 32 || len(one.Read) > maxReadText {
			t.Errorf("got %+v, want the maximum", one)
		}
	}
}

// BenchmarkCosts measures what the costs of a route add to an exchange. Bars (plans.md, section 10): 2 µs for a response of
// 2 KB, 30 ns for an event, no allocation; nothing without costs.
func BenchmarkCosts(b *testing.B) {
	for _, bc := range []struct {
		name, rules string
		response    *costly
	}{
		{"JSON", costOfTokens, newCostly(b, "application/json", completion())},
		{"200 events", costOfTokens, newCostly(b, "text/event-stream", chunks()...)},
		{"header", "[{meter: cents, max: 100, from: {header: x-cost}}]", newCostly(b, "application/json", completion())},
		{"none", "", newCostly(b, "application/json", completion())},
	} {
		b.Run(bc.name, func(b *testing.B) {
			var p *cost.Program
			if bc.rules != "" {
				p = programOf(b, bc.rules)
			}
			var used ratelimit.Used
			b.ReportAllocs()
			for b.Loop() {
				bc.response.settle(p, &used).release()
			}
		})
	}
}
