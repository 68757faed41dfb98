package cost_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/document"
)

// pageCosts returns the costs in the blocks of YAML of docs/costs.md, in their order.
func pageCosts(t *testing.T) (list []cost.Rules) {
	t.Helper()
	page, err := os.ReadFile("../../docs/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		n, err := document.Parse(block[1])
		if err != nil {
			t.Fatalf("%s: %v", block[1], err)
		}
		if routes := n.Member("routes"); routes != nil {
			n = &routes.Nodes[0]
		}
		m := n.Member("cost")
		if m == nil {
			t.Fatalf("%s: has no cost", block[1])
		}
		rules, err := cost.Read(m)
		if err != nil {
			t.Fatalf("%s: %v", block[1], err)
		}
		list = append(list, rules)
	}
	return list
}

// Guarantee: every cost on docs/costs.md is valid, and those for models read what the providers send, as JSON and as streams.
func TestCostsOfThePage(t *testing.T) {
	list := pageCosts(t)
	const models = 4
	if len(list) < models {
		t.Fatalf("the page has %d costs, want at least %d", len(list), models)
	}
	list = list[len(list)-models:]
	read := 0
	for _, s := range shapes() {
		var rules cost.Rules
		var want int64
		switch {
		case strings.Contains(s.name, "chat completion"):
			rules, want = list[0], 1154 // 1,000 + 4 × 51 - 101/2, rounded up
		case s.name == "stream of a response":
			rules, want = list[1], 36+4*87
		case s.name == "message":
			rules, want = list[2], 25+4*15
		case s.name == "stream of messages":
			rules, want = list[2], 25+4*15+1
		case strings.Contains(s.name, "generate content"):
			rules, want = list[3], 8+4*3
			if s.name == "generate content" {
				want = 8 + 4*5
			}
		default:
			continue
		}
		read++
		r := cost.Compile(rules).Reader(s.contentType, "")
		r.Write([]byte(s.body))
		if units, reason := r.Result(0, cost.End{Status: 200, Whole: true}); units != want || reason != cost.None {
			t.Errorf("%s: got %d units and the reason %q, want %d", s.name, units, reason, want)
		}
		r.Close()
	}
	if read < 10 {
		t.Errorf("read %d responses, want at least 10", read)
	}
}
