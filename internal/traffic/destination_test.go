package traffic

import (
	"strconv"
	"testing"
)

// Guarantee: at most 10,000 destinations are told apart. Requests for further addresses of an upstream are counted together,
// and so are those of upstreams beyond twice as many. None is lost, and known ones still count.
func TestDestinationsAreBounded(t *testing.T) {
	m, requests := NewMerger(Targets), int64(0)
	add := func(upstream, target string) {
		m.Add(&Entry{To: Destination{Upstream: upstream, Target: target}, Counts: Counts{Requests: 1}})
		requests++
	}
	for n := range MaxDestinations + 100 {
		add("default", strconv.Itoa(n)+":80")
	}
	add("next", "new:80")
	for n := range MaxDestinations + 100 {
		add("u"+strconv.Itoa(n), "new:80")
	}
	add("default", "7:80")
	add("next", "newer:80")
	sums, all := map[Destination]int64{}, int64(0)
	for _, e := range m.entries {
		sums[e.To] += e.Requests
		all += e.Requests
	}
	if len(sums) != 2*MaxDestinations+1 || all != requests {
		t.Errorf("%d destinations are told apart, with %d requests; want %d with %d", len(sums), all, 2*MaxDestinations+1, requests)
	}
	for to, want := range map[Destination]int64{
		{Upstream: "default", Target: "7:80"}: 2, {Upstream: "default", Target: "other"}: 100, {Upstream: "next", Target: "other"}: 2, {Upstream: "other", Target: "other"}: 102,
	} {
		if sums[to] != want {
			t.Errorf("%v has %d requests, want %d", to, sums[to], want)
		}
	}
}

// Guarantee: destinations that differ have identifiers that differ, and that of none is zero.
func TestIdentifiersOfDestinationsDiffer(t *testing.T) {
	known := map[[16]byte]Destination{}
	texts := []string{"", "a", "b", "ab", "other"}
	for _, u := range texts {
		for _, target := range texts {
			for _, side := range texts {
				d := Destination{u, target, side}
				id := d.ID()
				if before, is := known[id]; is {
					t.Errorf("%v and %v have the same identifier", before, d)
				}
				if known[id] = d; (id == [16]byte{}) != (d == Destination{}) {
					t.Errorf("%v has the identifier %x", d, id)
				}
			}
		}
	}
}
