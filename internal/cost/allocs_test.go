//go:build !race

package cost_test

import (
	"bytes"
	"testing"

	"github.com/keygate/keygate/internal/cost"
)

// The race detector makes a sync.Pool forget at random.

// Guarantee: a response is read without an allocation once a reader is there, and gzip with few.
func TestAllocations(t *testing.T) {
	p := cost.Compile(mustRead(t, benchPrices))
	body, stream, packed := completion(), bytes.Join(chunks(), nil), gzipped(completion())
	for _, tc := range []struct {
		name, contentType, encoding string
		body                        []byte
		most                        float64
	}{
		{"JSON", plainJSON, "", body, 0},
		{"events", events, "", stream, 0},
		{"gzip", plainJSON, "gzip", packed, 12},
	} {
		explained := make([]byte, 0, 256)
		got := testing.AllocsPerRun(200, func() {
			r := p.Reader(tc.contentType, tc.encoding)
			for at := 0; at < len(tc.body); at += 1000 {
				r.Write(tc.body[at:min(len(tc.body), at+1000)])
			}
			if _, reason := r.Result(0, cost.End{Status: 200, Whole: true}); reason != cost.None {
				t.Fatal(reason)
			}
			explained = r.AppendRead(explained[:0], 0)
			r.Close()
		})
		if got > tc.most {
			t.Errorf("%s: got %v allocations, want at most %v", tc.name, got, tc.most)
		}
	}
}
