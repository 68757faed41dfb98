package cli

import (
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
)

// Guarantee: --limit keeps the rows of the latest intervals, and of the earliest of them those with the most requests.
func TestLimitOfTheTrafficReport(t *testing.T) {
	var rows []client.TrafficRow
	for minute, requests := range [][]int64{{9}, {1, 7, 3}, {2, 5}} {
		for _, n := range requests {
			rows = append(rows, client.TrafficRow{Start: time.Unix(int64(60*minute), 0), Requests: n})
		}
	}
	for limit, want := range map[int][]int64{
		0: {9, 1, 7, 3, 2, 5}, 1: {5}, 2: {5, 2}, 3: {7, 2, 5}, 4: {7, 3, 2, 5}, 5: {7, 3, 1, 2, 5}, 6: {9, 1, 7, 3, 2, 5}, 100: {9, 1, 7, 3, 2, 5},
	} {
		var got []int64
		for _, r := range (&traffic{limit: limit}).latest(rows) {
			got = append(got, r.Requests)
		}
		if !slices.Equal(got, want) {
			t.Errorf("--limit %d: got rows with %d requests, want %d", limit, got, want)
		}
	}
}

// Guarantee: the table has the four meters with the most units, in order, and a cost for requests is not taken for their number.
func TestTrafficShowsMeters(t *testing.T) {
	rows := []client.TrafficRow{{Meters: map[string]int64{"tokens": 5, "requests": 4, "cents": 3}}, {}, {Meters: map[string]int64{"b": 9, "a": 1, "cents": 3}}}
	got := mostCharged(rows, func(r *client.TrafficRow) map[string]int64 { return r.Meters })
	if want := []string{"b", "cents", "requests", "tokens"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var names []string
	for _, c := range meterColumns(got) {
		names = append(names, c.Name)
	}
	if want := []string{"B", "CENTS", "REQUEST UNITS", "TOKENS"}; !slices.Equal(names, want) {
		t.Errorf("got the columns %v, want %v", names, want)
	}
}
