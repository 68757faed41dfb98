package validation

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
)

// Guarantee: checks of bodies that take long hold up those of the same account, and not those of another one. As many run at once as there
// are slots.
func TestAccountsTakeTurnsWithBodies(t *testing.T) {
	for size, c := range map[int]struct{ all, each int }{
		largeBody:     {max(2, runtime.GOMAXPROCS(0)), max(2, runtime.GOMAXPROCS(0)) / 2},
		largeBody - 1: {mediumChecks, mediumChecksOfAccount},
	} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := NewHolder()
				running := make(chan string, 20_000)
				end := make(chan struct{})
				accounts := c.all/c.each + 1
				for i := range accounts {
					for range 1000 {
						go h.check(fmt.Sprint(i), size, func() {
							running <- fmt.Sprint(i)
							<-end
						})
					}
					synctest.Wait()
					if got, want := len(running), min(c.all, (i+1)*c.each); got != want {
						t.Errorf("with %d accounts: %d checks run, want %d", i+1, got, want)
					}
				}
				close(end)
				synctest.Wait()
				if got := len(running); got != 1000*accounts {
					t.Errorf("%d checks have ended, want %d", got, 1000*accounts)
				}
				if n := len(h.large.ofAccount) + len(h.medium.ofAccount); n != 0 {
					t.Errorf("%d accounts are remembered, want none", n)
				}
			})
		})
	}
}
