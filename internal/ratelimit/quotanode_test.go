package ratelimit_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/quotatest"
)

// quotaNode is one process with a keeper.
type quotaNode struct {
	name   string
	t      *testing.T
	keeper *ratelimit.QuotaKeeper
	quotas *ratelimit.Quotas
	limits *ratelimit.Limiter
	began  time.Time
	ahead  atomic.Int64 // of its wall clock, in nanoseconds, until the store tells the time
}

// aSubject is the subject of most tests, and aQuota what they count.
var aSubject = [16]byte{1, 2, 3, 4, 5, 6, 0x70, 8, 0x80, 10}

func aQuota() ratelimit.QuotaName {
	return ratelimit.QuotaName{AccountID: "acct_1", Limit: "monthly", Meter: "requests", Unit: calendar.Month}
}

func aKey() ratelimit.QuotaKey { return ratelimit.QuotaKey{aQuota(), id.Format(id.Owner, aSubject)} }

func monthly(count int64) *ratelimit.QuotaTerms {
	return &ratelimit.QuotaTerms{Plan: "pro", Count: count, WarnAt: []int{80, 100}, Calendar: calendar.Calendar{Unit: calendar.Month, Zone: time.UTC, Anchor: 1}}
}

// startQuotas starts a process, which ends with the test.
func startQuotas(t *testing.T, m *quotatest.Store, name string, nodes int) *quotaNode {
	t.Helper()
	began := time.Now()
	n := &quotaNode{name: name, t: t, began: began, limits: ratelimit.NewLimiter(func() int64 { return int64(time.Since(began)) })}
	k, err := ratelimit.NewQuotaKeeper(ratelimit.QuotaKeeperConfig{
		Store: m, Process: name, Alone: nodes == 1, Nodes: func() int { return nodes },
		Now:   func() time.Time { return time.Now().Add(time.Duration(n.ahead.Load())) },
		Steer: func(now time.Time, _ time.Duration) { n.ahead.Store(int64(time.Until(now))) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.SetLive(name, true)
	n.keeper, n.quotas = k, k.Quotas(aQuota(), id.Owner, nil)
	t.Cleanup(n.stop)
	return n
}

// crash ends a process that gives nothing back.
func (n *quotaNode) crash(m *quotatest.Store) {
	n.t.Helper()
	m.Crash(n.name)
	_ = n.keeper.Stop(context.WithoutCancel(n.t.Context()))
}

func (n *quotaNode) stop() {
	n.t.Helper()
	if err := n.keeper.Stop(context.WithoutCancel(n.t.Context())); err != nil {
		n.t.Error(err)
	}
}

func (n *quotaNode) limit(t *ratelimit.QuotaTerms) ratelimit.Limit {
	q := n.quotas.Quota(aSubject, nil)
	if q == nil {
		q = n.quotas.Create(aSubject, nil, ratelimit.QuotaHolder{OwnerID: "own_1", Owner: "acme"})
	}
	return ratelimit.Limit{Scope: ratelimit.PlanScope, Label: ratelimit.NewLabel("pro", "monthly", ratelimit.Requests), Quota: q, Terms: t}
}

// ask decides one request, with further limits, and returns the charge. err is that of Wait.
func (n *quotaNode) ask(t *ratelimit.QuotaTerms, amount int64, more ...ratelimit.Limit) (c *ratelimit.Charge, result ratelimit.Result, err error) {
	return n.askUse(t, ratelimit.UseRequest, amount, more...)
}

// askUse is ask for a limit that counts a use.
func (n *quotaNode) askUse(t *ratelimit.QuotaTerms, use ratelimit.Use, amount int64, more ...ratelimit.Limit) (c *ratelimit.Charge, result ratelimit.Result, err error) {
	for {
		c = &ratelimit.Charge{}
		c.AddUse(n.limit(t), use, amount)
		for _, l := range more {
			c.Add(l, 1)
		}
		now := time.Now()
		result = n.limits.Decide(ratelimit.Instant{Mono: int64(now.Sub(n.began)), Wall: now.UnixNano() + n.ahead.Load()}, c)
		switch result {
		case ratelimit.NeedsReservation:
			if err := c.Wait(n.t.Context()); err != nil {
				return c, result, err
			}
		case ratelimit.Stale:
		default:
			return c, result, nil
		}
	}
}

// passes asks for requests of one unit until one is refused, at most most, and returns how many passed.
func (n *quotaNode) passes(t *ratelimit.QuotaTerms, most int) (passed int) {
	n.t.Helper()
	for ; passed < most; passed++ {
		_, r, err := n.ask(t, 1)
		if err != nil {
			n.t.Error(err)
		}
		if r != ratelimit.Admitted {
			break
		}
	}
	return passed
}

// pass lets virtual time pass.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // virtual time

// Guarantee: a process that reserves nothing ahead refuses within a second what another process has used up.
func TestRequestsThatReserveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, terms := quotatest.New(), monthly(100)
		a, b := startQuotas(t, store, "a", 2), startQuotas(t, store, "b", 2)
		begin := func(n *quotaNode) (*ratelimit.Charge, ratelimit.Result) {
			c, r, err := n.askUse(terms, ratelimit.UseBytesOut, 0)
			if err != nil {
				t.Fatal(err)
			}
			return c, r
		}
		begin(b)
		c, _ := begin(a)
		a.limits.Settle(c, &ratelimit.Used{ratelimit.UseBytesOut: 101})
		pass(time.Second)
		for _, n := range []*quotaNode{a, b} {
			if _, r := begin(n); r != ratelimit.Refused {
				t.Errorf("process %s: got %v after 101 of 100 were used, want a refusal", n.name, r)
			}
		}
	})
}
