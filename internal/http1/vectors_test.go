package http1

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/http1/vectortest"
)

// verdict reads input in all its splits and fails the test if they differ.
func verdict(t *testing.T, r *rand.Rand, input []byte) reading {
	t.Helper()
	var first reading
	for i, pieces := range splits(r, input, 20) {
		got := readAll(pieces)
		if i == 0 {
			first = got
		} else if !sameReading(first, got) {
			t.Fatalf("%q\nread whole: %v\nsplit as %q: %v", input, first, pieces, got)
		}
	}
	return first
}

// Guarantee: of the vectors of http-desync-guardian, all that is Severe is
// refused, all that is Compliant passes, and what passes of the tiers between
// is unambiguous: one framing, no bad token, no white space that another
// parser could read differently.
func TestDesyncVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	vectors := vectortest.DesyncRequests(t)
	if len(vectors) < 150 {
		t.Errorf("only %d vectors were found", len(vectors))
	}
	codings := vectortest.Codings()
	for _, v := range vectors {
		got := verdict(t, r, []byte(v.Input))
		refused := got.err != nil
		switch v.Tier {
		case "Severe":
			if !refused {
				t.Errorf("%s (%s): passed\n%q", v.Name, v.Reason, v.Input)
			}
		case "Compliant":
			if _, listed := codings[v.Name]; refused != listed {
				t.Errorf("%s: refused: %v\n%q", v.Name, got.err, v.Input)
			}
		case "Acceptable", "Ambiguous":
			for _, m := range got.messages {
				framings := 0
				for _, f := range m.fields {
					lower := strings.ToLower(f)
					if strings.HasPrefix(lower, "content-length:") || strings.HasPrefix(lower, "transfer-encoding:") {
						framings++
					}
				}
				if framings > 1 || strings.ContainsAny(m.target, " \t") {
					t.Errorf("%s: passed ambiguously: %+v", v.Name, m)
				}
			}
		default:
			t.Errorf("%s: unknown tier %q", v.Name, v.Tier)
		}
	}
}

// Guarantee: whatever Node's parser refuses is refused, and what this parser
// refuses beyond that is listed with its rule.
func TestNodeRequestVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	vectors := vectortest.NodeVectors(t, "request*.md")
	if len(vectors) < 150 {
		t.Fatalf("only %d vectors were found", len(vectors))
	}
	stricter, laxer := vectortest.Stricter(), vectortest.Laxer()
	used := map[string]bool{}
	for _, v := range vectors {
		got := verdict(t, r, []byte(v.Input))
		if v.Lenient() {
			continue
		}
		nodeRefuses := v.Refused()
		rule, listed := stricter[v.Name]
		used[v.Name] = true
		switch refused := got.err != nil; {
		case nodeRefuses && !refused && !got.rest && !got.closed && laxer[v.Name] == "":
			t.Errorf("%s: Node refuses, we read %v\n%q\n%s", v.Name, got, v.Input, v.Log)
		case !nodeRefuses && refused && !listed:
			t.Errorf("%s: Node reads it, we say %v\n%q", v.Name, got.err, v.Input)
		case !nodeRefuses && !refused && listed:
			t.Errorf("%s passes now; the list says %s", v.Name, rule)
		}
	}
	for name := range stricter {
		if !used[name] {
			t.Errorf("%s is listed and is no vector", name)
		}
	}
}
