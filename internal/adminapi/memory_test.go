package adminapi

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Guarantee: memory is given back a second after large documents, not more often than every
// 10 s, and not after small ones.
func TestMemoryIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		m := memory{free: func() {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(begin))
		}}
		m.used(returnAbove / 2)
		<-time.After(time.Minute)
		synctest.Wait()
		if len(at) != 0 {
			t.Errorf("got memory returned at %v after a small document, want never", at)
		}
		begin = time.Now()
		for range 40 {
			m.used(returnAbove)
			<-time.After(100 * time.Millisecond)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if len(at) != 2 || at[0] != time.Second || at[1] != 11*time.Second {
			t.Errorf("got memory returned at %v, want at 1s and 11s", at)
		}
	})
}
