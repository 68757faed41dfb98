package storetest

import (
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/ratelimit"
)

// benchQuotas measures claims of 500 of 20,000 monthly quotas each, one after the other.
func benchQuotas(b *bench) {
	const each, quotas = 500, 20_000
	now := time.Now()
	claims := make([]ratelimit.QuotaClaim, quotas)
	for i := range claims {
		k := ratelimit.QuotaKey{QuotaName: ratelimit.QuotaName{AccountID: b.account.ID, Limit: "per-month", Meter: ratelimit.Requests, Unit: calendar.Month},
			Subject: fmt.Sprintf("own_%026d", i)}
		claims[i] = quotaClaim(k, 1_000_000, 1000)
	}
	some := func(i int) []ratelimit.QuotaClaim { return claims[i*each%quotas : i*each%quotas+each] }
	for i := range quotas / each {
		_, err := b.ClaimQuotas(b.Context(), "p", now, some(i))
		b.must(err)
	}
	for i := 0; b.Loop(); i++ {
		list := some(i)
		for j := range list {
			c := &list[j]
			c.Window, c.Own = c.Answer.Start, c.Share.Own
			c.Own.Reserved = 0
			c.Need = 0
		}
		_, err := b.ClaimQuotas(b.Context(), "p", now, list)
		b.must(err)
		b.done += each
	}
	b.report("quotas")
}
