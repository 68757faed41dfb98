package ratelimit

import (
	"testing"
	"testing/synctest"

	"github.com/keygate/keygate/internal/keygatetest/defecttest"
)

// Guarantee: the tests find a refund that ignores what the node holds.
func TestDefectsOfSharingAreFound(t *testing.T) { defecttest.Run(t) }

// Guarantee: however often charged requests give their tokens back, a node can spend no more tokens than the
// limit store believes it to hold.
func TestReturnedTokensStayWithinWhatTheNodeHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, Leased, DivideOnLoss)
		defer c.stop()
		n := c.nodes[0]
		l := n.limit(1, Config{Sustained: perSecondRate(4000)})
		for range 100 {
			n.request(l)
		}
		e := l.Bucket.lease
		synctest.Wait()
		e.mu.Lock()
		held := e.held
		e.mu.Unlock()
		if held == 0 {
			t.Fatal("the node holds nothing: the test shows nothing")
		}
		for range 1000 {
			e.payBack(&view{amount: 1, state: &e.tokens, word: e.tokens.Load()}, nil, n.clock().Mono)
		}
		spent := int64(0)
		for now := n.clock(); ; spent++ {
			if r, _ := decide(now, []Limit{l}, make([]Status, 1)); r != Admitted {
				break
			}
		}
		if spent > held {
			t.Errorf("%d requests passed on tokens of the node, want at most the %d that it holds", spent, held)
		}
	})
}
