package ratelimit

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Guarantee: however many daily caps of an account need the store for each request, a request of another account waits
// for the call of the store that runs and for two more.
func TestDailyCapsOfManyKeysDelayNoOtherAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callTime = 40 * time.Millisecond
		store := newMemoryStore()
		store.onSave = func(claims []DailyClaim) { time.Sleep(callTime) } //nolint:forbidigo // virtual time
		r, err := NewReserver(ReserverConfig{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		budget := NewBudget(1 << 30)
		many, one := r.Dailies("many", Rate{Count: 2, Per: 24 * time.Hour}), r.Dailies("one", Rate{Count: 50, Per: 24 * time.Hour})
		many.CountTowards(budget.Of("acct_many"))
		one.CountTowards(budget.Of("acct_one"))
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var subjects atomic.Uint32
		for i := range 2000 { // requests of ever other keys, whose clients do not wait long
			all.Go(func() {
				for ctx.Err() == nil {
					var k [16]byte
					binary.BigEndian.PutUint32(k[:], subjects.Add(1))
					short, end := context.WithTimeout(ctx, time.Duration(50+i%100)*time.Millisecond)
					_ = r.Wait(short, many.Daily(k))
					end()
				}
			})
		}
		time.Sleep(10*callTime + callTime/2) //nolint:forbidigo // virtual time
		for i := range 30 {
			from := time.Now()
			if err := r.Wait(t.Context(), one.Daily([16]byte{1, byte(i)})); err != nil {
				t.Errorf("a request of another account: %v", err)
			}
			if took := time.Since(from); took > 3*callTime {
				t.Errorf("a request of another account waited %v; want three calls of %v at most", took, callTime)
			}
		}
		stop()
		all.Wait()
		if err := r.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
