package tlspump

import "testing"

// Guarantee: the number of complete records does not depend on how the stream is split.
func TestRecordsAreCounted(t *testing.T) {
	stream := []byte{23, 3, 3, 0, 2, 'a', 'b', 22, 3, 3, 0, 0, 23, 3, 3, 1, 1}
	stream = append(stream, make([]byte, 257)...)
	ends := []int{7, 12, len(stream)}
	for at := range stream {
		var r records
		r.add(stream[:at])
		want := 0
		for _, end := range ends {
			if end <= at {
				want++
			}
		}
		if r.whole != want {
			t.Errorf("%d bytes: got %d records, want %d", at, r.whole, want)
		}
		if got, want := r.between(), at == 0 || at == ends[0] || at == ends[1]; got != want {
			t.Errorf("%d bytes: got between %v, want %v", at, got, want)
		}
		r.add(stream[at:])
		if r.whole != 3 || !r.between() {
			t.Errorf("split at %d: got %+v, want 3 records and nothing begun", at, r)
		}
	}
}
