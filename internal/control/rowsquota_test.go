package control_test

import (
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// claims claims units of as many quotas as one call of the store may have, each for the first time and then with all
// percentages passed.
func (h *rowHarness) claims() {
	const most = 400 // ratelimit.quotasAtOnce
	terms := &ratelimit.QuotaTerms{Plan: "p", Count: 1, Allow: true, WarnAt: []int{1, 2, 3, 4, 5}}
	claims := make([]ratelimit.QuotaClaim, most)
	for i := range claims {
		claims[i] = ratelimit.QuotaClaim{QuotaKey: ratelimit.QuotaKey{QuotaName: ratelimit.QuotaName{AccountID: h.caller.Account.ID, Limit: fmt.Sprint("l", i), Meter: "requests", Unit: calendar.Day}, Subject: id.New(id.Key)},
			Terms: terms, Calendar: calendar.Calendar{Unit: calendar.Day, Zone: time.UTC, Anchor: 1}, Want: 1, Need: 1}
	}
	h.do("claim quotas", func() error { return second(h.engine.ClaimQuotas(ctx(), "p", h.clock.now(), claims)) })
	for i := range claims {
		c := &claims[i]
		c.Window, c.Own, c.Want, c.Need = c.Answer.Start, ratelimit.QuotaFigures{Taken: 1}, 0, 0
	}
	h.do("claim quotas that pass percentages", func() error { return second(h.engine.ClaimQuotas(ctx(), "p", h.clock.now(), claims)) })
}
