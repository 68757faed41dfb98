package ratelimit_test

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/quotatest"
)

// roundTime is how long a round of a slowStore takes.
const roundTime = 40 * time.Millisecond

// slowStore is a store whose claims take a while.
type slowStore struct{ *quotatest.Store }

func (s slowStore) ClaimQuotas(ctx context.Context, process string, now time.Time, claims []ratelimit.QuotaClaim) (time.Time, error) {
	pass(roundTime)
	return s.Store.ClaimQuotas(ctx, process, now, claims)
}

// Guarantee: however many quotas of an account need the store for each request, a request of another account waits for
// the round that runs and for one more.
func TestQuotasOfManyKeysDelayNoOtherAccount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := quotatest.New()
		k, err := ratelimit.NewQuotaKeeper(ratelimit.QuotaKeeperConfig{Store: slowStore{m}, Process: "a", Alone: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		limiter := ratelimit.NewLimiter(func() int64 { return int64(time.Since(began)) })
		node := func(account string) *quotaNode {
			name := aQuota()
			name.AccountID = account
			return &quotaNode{name: "a", t: t, keeper: k, quotas: k.Quotas(name, id.Key, nil), limits: limiter, began: began}
		}
		many, one := node("acct_many"), node("acct_one")
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var subjects atomic.Uint32
		for i := range 2000 { // requests of ever other keys, whose clients do not wait long
			terms := monthly(1)
			terms.WarnAt = nil
			all.Go(func() {
				for ctx.Err() == nil {
					subject := aSubject
					binary.BigEndian.PutUint32(subject[:], subjects.Add(1))
					c := &ratelimit.Charge{}
					c.Add(ratelimit.Limit{Scope: ratelimit.PlanScope, Quota: many.quotas.Create(subject, nil, ratelimit.QuotaHolder{}), Terms: terms}, 1)
					now := time.Now()
					if limiter.Decide(ratelimit.Instant{Mono: int64(now.Sub(began)), Wall: now.UnixNano()}, c) == ratelimit.NeedsReservation {
						short, end := context.WithTimeout(ctx, time.Duration(50+i%100)*time.Millisecond)
						_ = c.Wait(short) // in vain for most
						end()
					}
				}
			})
		}
		pass(10*roundTime + roundTime/2)
		for range 30 {
			from := time.Now()
			if _, r, err := one.ask(monthly(50), 1); err != nil || r != ratelimit.Admitted {
				t.Errorf("a request of another account: %v, %v", r, err)
			}
			if took := time.Since(from); took > 2*roundTime {
				t.Errorf("a request of another account waited %v; want two rounds of %v at most", took, roundTime)
			}
			pass(7 * time.Millisecond)
		}
		stop()
		all.Wait()
		synctest.Wait()
		if err := k.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// Guarantee: while an account may raise no more events, its quotas tell of no percentage, and they do so once it may again.
func TestQuotasOfAFullAccountTellLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := quotatest.New()
		var full atomic.Bool
		full.Store(true)
		k, err := ratelimit.NewQuotaKeeper(ratelimit.QuotaKeeperConfig{Store: m, Process: "a", Alone: true, Full: func(account string) bool { return account == "acct_1" && full.Load() }})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		n := &quotaNode{name: "a", t: t, keeper: k, quotas: k.Quotas(aQuota(), id.Owner, nil), limits: ratelimit.NewLimiter(func() int64 { return int64(time.Since(began)) }), began: began}
		t.Cleanup(n.stop)
		if passed := n.passes(monthly(20), 30); passed != 20 {
			t.Errorf("%d of 20 passed", passed)
		}
		pass(5 * time.Minute)
		if told := m.Told(); len(told) > 0 {
			t.Errorf("told of %v while the account was full", told)
		}
		full.Store(false)
		pass(2 * time.Minute)
		if told := m.Told(); !slices.Equal(told, []int{80, 100}) {
			t.Errorf("told of %v afterwards, want 80 and 100", told)
		}
	})
}
