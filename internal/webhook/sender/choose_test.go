package sender

import (
	"slices"
	"testing"
	"time"
)

// Guarantee: a claim leases, of each endpoint that it wants, the deliveries that have been due longest, and no more than
// it wants; none of an endpoint that is not active, none that is not due, and none without an attempt if it skips these.
func TestChoose(t *testing.T) {
	c := Claim{Token: "t", Wants: []Want{{WebhookID: "a", Limit: 2}, {WebhookID: "b", Limit: 5, SkipNew: true}, {WebhookID: "c", Limit: 0}}}
	of := func(endpoint string, n int64, waited time.Duration, begun, active bool) Candidate {
		return Candidate{Job: Job{Endpoint: Endpoint{WebhookID: endpoint}}, N: n, Waited: waited, Begun: begun, Active: active}
	}
	chosen := c.Choose([]Candidate{
		of("a", 1, 1*time.Second, false, true),
		of("a", 2, 3*time.Second, true, true),
		of("b", 3, 0, true, true),
		of("b", 4, 9*time.Second, false, true), // new
		of("b", 5, -1, true, true),             // not due
		of("b", 6, 8*time.Second, true, false), // not active
		of("c", 7, 9*time.Second, true, true),
		of("d", 8, 9*time.Second, true, true), // not wanted
		of("a", 10, 2*time.Second, false, true),
		of("a", 9, 2*time.Second, false, true),
	})
	var got []int64
	for _, d := range chosen {
		got = append(got, d.N)
		if d.Token != "t" {
			t.Errorf("delivery %d has the token %q, want that of the claim", d.N, d.Token)
		}
	}
	if want := []int64{2, 9, 3}; !slices.Equal(got, want) {
		t.Errorf("chose %v, want %v", got, want)
	}
}
