package sender

import (
	"cmp"
	"slices"
	"time"
)

// Candidate is a delivery that a queue has found for a claim.
type Candidate struct {
	Job
	N      int64         // the store's number of the delivery
	Waited time.Duration // since it became due or its lease ended; negative if that is still to come
	Begun  bool          // Due.Begun stands for it
	Active bool          // the endpoint is Active and its account is not suspended
}

// Choose returns the candidates that the claim leases: of each endpoint that it wants, those that have been due longest,
// and of equal ones those that the store has had longest. A queue finds at least as many as are wanted of each endpoint,
// of those with Begun and of those without.
func (c *Claim) Choose(found []Candidate) []Candidate {
	slices.SortFunc(found, func(a, b Candidate) int { return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.N, b.N)) })
	wants := make(map[string]Want, len(c.Wants))
	for _, w := range c.Wants {
		wants[w.WebhookID] = w
	}
	chosen := found[:0]
	for _, d := range found {
		want := wants[d.Endpoint.WebhookID]
		if !d.Active || d.Waited < 0 || want.Limit <= 0 || want.SkipNew && !d.Begun {
			continue
		}
		want.Limit--
		wants[want.WebhookID] = want
		d.Token = c.Token
		chosen = append(chosen, d)
	}
	return chosen
}
