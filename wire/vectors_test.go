package wire

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/http1/vectortest"
)

// lane is a data plane with a recording upstream that one goroutine uses.
type lane struct {
	plane *plane
	back  *recorder
}

func newLane(t testing.TB) *lane {
	t.Helper()
	back := newRecorder(t)
	return &lane{start(t, setup{open: true}, back.addr, nil), back}
}

// verdict asks in all splits and fails the test if the verdicts differ, or if
// something reached the upstream that can be read in two ways.
func (l *lane) verdict(t testing.TB, r *rand.Rand, name string, input []byte) (first reading) {
	t.Helper()
	for i, pieces := range splits(r, input, 2) {
		got := ask(t, l.plane.addr, pieces)
		requests, malformed := l.back.take()
		for _, one := range requests {
			got.requests = append(got.requests, one.String())
		}
		if len(malformed) > 0 {
			t.Errorf("%s: reached the upstream: %s\n%q", name, malformed, input)
		}
		if i == 0 {
			first = got
		} else if !got.equal(first) {
			t.Errorf("%s: whole %+v; in pieces %+v\n%q\n%q", name, first, got, input, pieces)
		}
	}
	return first
}

// splits returns b whole, byte by byte, and n random splits of it.
func splits(r *rand.Rand, b []byte, n int) [][][]byte {
	single := make([][]byte, 0, len(b))
	for i := range b {
		single = append(single, b[i:i+1])
	}
	out := [][][]byte{{b}}
	if len(b) <= 4<<10 {
		out = append(out, single)
	}
	for range n {
		var pieces [][]byte
		for rest := b; len(rest) > 0; {
			k := 1 + r.IntN(len(rest))
			pieces, rest = append(pieces, rest[:k]), rest[k:]
		}
		out = append(out, pieces)
	}
	return out
}

// inLanes calls f for each of n numbers, some of them at once.
func inLanes(t *testing.T, n int, f func(l *lane, i int)) {
	const lanes = 4
	var all sync.WaitGroup
	for k := range lanes {
		l := newLane(t)
		all.Go(func() {
			for i := k; i < n; i += lanes {
				f(l, i)
			}
		})
	}
	all.Wait()
}

// paths lists the vectors of http-desync-guardian that are Compliant and refused
// here for their target or method, with the rule that decides it.
func paths() map[string]string {
	const escaped = "control bytes, plain or encoded, in the path (contract, 4.5)"
	return map[string]string{
		"rfc-compliant.yaml/Compliant URL":              "a fragment in the target (contract, 4.5)",
		"uri-specific-test-cases.yaml/%0A in URI is OK": escaped,
		"uri-specific-test-cases.yaml/%09 in URI is OK": escaped,
		"uri-specific-test-cases.yaml/%0D in URI is OK": escaped,
	}
}

// Guarantee: through a socket, in whatever pieces, what http-desync-guardian
// calls Severe is refused, with the connection closed and nothing at the
// upstream; what it calls Compliant passes; and all that passes is clean.
func TestDesyncVectors(t *testing.T) {
	t.Parallel()
	vectors := vectortest.DesyncRequests(t)
	codings, paths := vectortest.Codings(), paths()
	inLanes(t, len(vectors), func(l *lane, i int) {
		v := vectors[i]
		got := l.verdict(t, rand.New(rand.NewPCG(uint64(i), 1)), v.Name, []byte(v.Input))
		switch v.Tier {
		case "Severe":
			if !got.refused() || len(got.statuses) != 1 || len(got.requests) > 0 {
				t.Errorf("%s (%s): %+v\n%q", v.Name, v.Reason, got, v.Input)
			}
		case "Compliant":
			_, listed := codings[v.Name]
			_, forPath := paths[v.Name]
			if got.refused() != (listed || forPath) {
				t.Errorf("%s: %+v\n%q", v.Name, got, v.Input)
			}
		}
	})
}

// Guarantee: through a socket, in whatever pieces, nothing reaches the upstream
// that Node's parser refuses, and what reaches it is clean.
func TestNodeVectors(t *testing.T) {
	t.Parallel()
	vectors := vectortest.NodeVectors(t, "request*.md")
	laxer := vectortest.Laxer()
	inLanes(t, len(vectors), func(l *lane, i int) {
		v := vectors[i]
		got := l.verdict(t, rand.New(rand.NewPCG(uint64(i), 2)), v.Name, []byte(v.Input))
		read := strings.Count(v.Log, "message complete")
		if v.Refused() && laxer[v.Name] == "" && len(got.requests) > read {
			t.Errorf("%s: Node reads %d messages; %+v\n%q\n%s", v.Name, read, got, v.Input, v.Log)
		}
	})
}
