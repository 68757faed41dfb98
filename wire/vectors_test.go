package wire

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/vectortest"
)

// worker is a data plane with a recording upstream, for use by one goroutine.
type worker struct {
	plane *dataPlane
	back  *recorder
}

func newWorker(t testing.TB) *worker {
	t.Helper()
	back := newRecorder(t)
	return &worker{start(t, setup{open: true}, back.addr, nil), back}
}

// readInSplits sends input whole and in splits. It fails the test if the results differ, or
// if something that parsers could read in two ways reached the upstream.
func (l *worker) readInSplits(t testing.TB, r *rand.Rand, name string, input []byte) (first reading) {
	t.Helper()
	for i, pieces := range splits(r, input, 2) {
		got := sendStream(t, l.plane.addr, pieces)
		requests, malformed := l.back.take()
		for _, one := range requests {
			got.requests = append(got.requests, one.String())
		}
		if len(malformed) > 0 {
			t.Errorf("%s: the upstream received malformed bytes: %s\n%q", name, malformed, input)
		}
		if i == 0 {
			first = got
		} else if !got.equal(first) {
			t.Errorf("%s: in pieces got %+v, want %+v as in one piece\n%q\n%q", name, got, first, input, pieces)
		}
	}
	return first
}

// splits returns b whole, b byte by byte if it is not large, and n random splits of b.
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

// inParallel calls f for each number below n, in several workers.
func inParallel(t *testing.T, n int, f func(l *worker, i int)) {
	const workers = 4
	var all sync.WaitGroup
	for k := range workers {
		l := newWorker(t)
		all.Go(func() {
			for i := k; i < n; i += workers {
				f(l, i)
			}
		})
	}
	all.Wait()
}

// paths returns the Compliant vectors of http-desync-guardian that the gateway refuses for
// their target, each with the rule by which it does.
func paths() map[string]string {
	const escaped = "control bytes, plain or encoded, in the path (contract, 4.5)"
	return map[string]string{
		"rfc-compliant.yaml/Compliant URL":              "a fragment in the target (contract, 4.5)",
		"uri-specific-test-cases.yaml/%0A in URI is OK": escaped,
		"uri-specific-test-cases.yaml/%09 in URI is OK": escaped,
		"uri-specific-test-cases.yaml/%0D in URI is OK": escaped,
	}
}

// Guarantee: however the bytes are split, requests that http-desync-guardian classifies as
// Severe are refused, with the connection closed and nothing forwarded; requests that it classifies
// as Compliant are forwarded, apart from the listed ones; and forwarded requests are unambiguous.
func TestDesyncVectors(t *testing.T) {
	t.Parallel()
	vectors := vectortest.DesyncRequests(t)
	codings, paths := vectortest.Codings(), paths()
	inParallel(t, len(vectors), func(l *worker, i int) {
		v := vectors[i]
		got := l.readInSplits(t, rand.New(rand.NewPCG(uint64(i), 1)), v.Name, []byte(v.Input))
		switch v.Tier {
		case "Severe":
			if !got.refused() || len(got.statuses) != 1 || len(got.requests) > 0 {
				t.Errorf("%s (%s): got %+v, want one refusal and nothing forwarded\n%q", v.Name, v.Reason, got, v.Input)
			}
		case "Compliant":
			_, listed := codings[v.Name]
			_, forPath := paths[v.Name]
			if (listed || forPath) && !got.refused() {
				t.Errorf("%s: got %+v, want it refused by the listed rule\n%q", v.Name, got, v.Input)
			}
			if !listed && !forPath && got.refused() {
				t.Errorf("%s: got %+v, want it forwarded\n%q", v.Name, got, v.Input)
			}
		}
	})
}

// Guarantee: however the bytes are split, no request that Node's parser rejects reaches the
// upstream, and requests that reach it are unambiguous.
func TestNodeVectors(t *testing.T) {
	t.Parallel()
	vectors := vectortest.NodeVectors(t, "request*.md")
	laxer := vectortest.Laxer()
	inParallel(t, len(vectors), func(l *worker, i int) {
		v := vectors[i]
		got := l.readInSplits(t, rand.New(rand.NewPCG(uint64(i), 2)), v.Name, []byte(v.Input))
		read := strings.Count(v.Log, "message complete")
		if v.Refused() && laxer[v.Name] == "" && len(got.requests) > read {
			t.Errorf("%s: got %+v, want at most %d requests forwarded as Node reads them\n%q\n%s", v.Name, got, read, v.Input, v.Log)
		}
	})
}
