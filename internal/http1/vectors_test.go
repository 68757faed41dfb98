package http1

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/vectortest"
)

// readInSplits reads input whole and in many splits, and fails the test if the readings
// differ.
func readInSplits(t *testing.T, r *rand.Rand, input []byte) reading {
	t.Helper()
	var first reading
	for i, pieces := range splits(r, input, 20) {
		got := readAll(pieces)
		if i == 0 {
			first = got
		} else if !sameReading(first, got) {
			t.Fatalf("%q split as %q\ngot:  %v\nwant: %v", input, pieces, got, first)
		}
	}
	return first
}

// Guarantee: of the http-desync-guardian vectors, all Severe ones are rejected, and all Compliant
// ones are accepted, apart from the listed codings. Accepted vectors of other tiers are
// unambiguous: they have at most one framing field, and no white space in the target.
func TestDesyncVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	vectors := vectortest.DesyncRequests(t)
	if len(vectors) < 150 {
		t.Errorf("got %d vectors, want at least 150", len(vectors))
	}
	codings := vectortest.Codings()
	for _, v := range vectors {
		got := readInSplits(t, r, []byte(v.Input))
		_, listed := codings[v.Name]
		switch v.Tier {
		case "Severe":
			if got.err == nil {
				t.Errorf("%s (%s): accepted, want an error\n%q", v.Name, v.Reason, v.Input)
			}
		case "Compliant":
			if listed && got.err == nil {
				t.Errorf("%s: accepted, want an error for its transfer coding\n%q", v.Name, v.Input)
			}
			if !listed && got.err != nil {
				t.Errorf("%s: got error %v, want it accepted\n%q", v.Name, got.err, v.Input)
			}
		case "Acceptable", "Ambiguous":
			for _, m := range got.messages {
				if framingFields(m) > 1 || strings.ContainsAny(m.target, " \t") {
					t.Errorf("%s: accepted as %+v, want an error or an unambiguous reading", v.Name, m)
				}
			}
		default:
			t.Errorf("%s: unknown tier %q", v.Name, v.Tier)
		}
	}
}

// framingFields returns the number of fields that declare the framing of the body.
func framingFields(m message) (n int) {
	for _, f := range m.fields {
		lower := strings.ToLower(f)
		if strings.HasPrefix(lower, "content-length:") || strings.HasPrefix(lower, "transfer-encoding:") {
			n++
		}
	}
	return n
}

// Guarantee: requests that Node's parser rejects are rejected, apart from the vectors in
// vectortest.Laxer, and the only other requests that are rejected are the vectors in
// vectortest.Stricter.
func TestNodeRequestVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	vectors := vectortest.NodeVectors(t, "request*.md")
	if len(vectors) < 150 {
		t.Fatalf("got %d vectors, want at least 150", len(vectors))
	}
	stricter, laxer := vectortest.Stricter(), vectortest.Laxer()
	used := map[string]bool{}
	for _, v := range vectors {
		got := readInSplits(t, r, []byte(v.Input))
		if v.Lenient() {
			continue
		}
		rule, listed := stricter[v.Name]
		used[v.Name] = true
		rejected := got.err != nil
		switch {
		case v.Refused() && !rejected && !got.rest && !got.closed && laxer[v.Name] == "":
			t.Errorf("%s: got %v, want an error as from Node\n%q\n%s", v.Name, got, v.Input, v.Log)
		case !v.Refused() && rejected && !listed:
			t.Errorf("%s: got error %v, want it accepted as by Node\n%q", v.Name, got.err, v.Input)
		case !v.Refused() && !rejected && listed:
			t.Errorf("%s: accepted, want an error by the rule in vectortest.Stricter: %s", v.Name, rule)
		}
	}
	for name := range stricter {
		if !used[name] {
			t.Errorf("vectortest.Stricter lists %s, which is not a vector", name)
		}
	}
}
