package ratelimit_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/quotatest"
)

// countedQuotas is a store of which each call takes some time, and which counts what it is asked for.
type countedQuotas struct {
	ratelimit.QuotaStore
	calls, claims atomic.Int64
}

func (s *countedQuotas) ClaimQuotas(ctx context.Context, process string, now time.Time, claims []ratelimit.QuotaClaim) (time.Time, error) {
	s.calls.Add(1)
	s.claims.Add(int64(len(claims)))
	pass(time.Millisecond + time.Duration(len(claims))*20*time.Microsecond)
	return s.QuotaStore.ClaimQuotas(ctx, process, now, claims)
}

// Guarantee: plans.md, section 10: 10⁵ owners with monthly quotas of 10,000 requests or more, who send 20,000 requests a
// second, make at most 50 transactions a second, which write at most 2,000 rows: two for each claim. This is a tenth of
// them, with a tenth of the rows.
func TestQuotasOfManyOwnersInFewTransactions(t *testing.T) {
	const owners, perSecond, seconds = 10_000, 2_000, 5
	for _, count := range []int64{10_000, 1_000_000} {
		synctest.Test(t, func(t *testing.T) {
			store := &countedQuotas{QuotaStore: quotatest.New()}
			k, err := ratelimit.NewQuotaKeeper(ratelimit.QuotaKeeperConfig{Store: store, Process: "a", Alone: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := k.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			n := &quotaNode{name: "a", t: t, keeper: k, quotas: k.Quotas(aQuota(), id.Owner, nil), limits: ratelimit.NewLimiter(func() int64 { return int64(time.Since(began)) }), began: began}
			t.Cleanup(n.stop)
			terms := monthly(count)
			limits := make([]ratelimit.Limit, owners)
			ask := func(owner int, units int64) {
				if limits[owner].Quota == nil {
					subject := aSubject
					binary.BigEndian.PutUint32(subject[12:], uint32(owner))
					limits[owner] = ratelimit.Limit{Scope: ratelimit.PlanScope, Quota: n.quotas.Create(subject, nil, ratelimit.QuotaHolder{}), Terms: terms}
				}
				for {
					var c ratelimit.Charge
					c.Add(limits[owner], units)
					now := time.Now()
					switch n.limits.Decide(ratelimit.Instant{Mono: int64(now.Sub(began)), Wall: now.UnixNano()}, &c) {
					case ratelimit.Admitted:
						return
					case ratelimit.NeedsReservation:
						if err := c.Wait(t.Context()); err != nil {
							t.Error(err)
							return
						}
					default:
						t.Errorf("refused of %d", count)
						return
					}
				}
			}
			done := make(chan bool)
			for worker := range 64 { // each owner has asked once
				go func() {
					drawn := rand.New(rand.NewPCG(uint64(worker), 2))
					for owner := worker; owner < owners; owner += 64 {
						ask(owner, 1)
						ask(owner, 1+drawn.Int64N(max(1, count/200)))
					}
					done <- true
				}()
			}
			for range 64 {
				<-done
			}
			pass(time.Second)
			drawn := rand.New(rand.NewPCG(1, 1))
			calls, claims := store.calls.Load(), store.claims.Load()
			for range seconds * 1000 {
				pass(time.Millisecond)
				for range perSecond / 1000 {
					go ask(drawn.IntN(owners), 1)
				}
			}
			synctest.Wait()
			calls, claims = store.calls.Load()-calls, store.claims.Load()-claims
			if calls > 50*seconds || 2*claims > perSecond/10*seconds {
				t.Errorf("a month of %d requests: %d transactions with %d claims in %d s", count, calls, claims, seconds)
			}
		})
	}
}
