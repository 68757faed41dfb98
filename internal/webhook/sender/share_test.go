package sender

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// crowd is a dispatcher with accounts whose endpoints hang, are slow, fail, succeed or do each in
// turn.
type crowd struct {
	*dispatch
	t     *rapid.T
	known map[string]string // accounts by endpoint
}

// Guarantee: whatever mix of endpoints works, hangs, is slow or fails: no account gets a slot or a
// lease beyond its share; accounts without any get one from the reserve; no slot stays free while
// an account waits for it and may take it; and every slot and lease is given back.
func TestSlotsAreShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &crowd{dispatch: newDispatch(), t: t, known: map[string]string{}}
		c.start = func(task *task) {
			c.started = append(c.started, task)
			c.checkShare(task)
		}
		t.Repeat(map[string]func(*rapid.T){
			"bring": func(t *rapid.T) {
				account := fmt.Sprint("acct_", rapid.IntRange(1, 12).Draw(t, "account"))
				for range rapid.IntRange(1, 60).Draw(t, "endpoints") {
					hook := fmt.Sprint(account, "/wh_", rapid.IntRange(1, 200).Draw(t, "endpoint"))
					c.known[hook] = account
					c.bring(account, hook, rapid.IntRange(1, 600).Draw(t, "deliveries"))
				}
			},
			"end": func(t *rapid.T) {
				status := rapid.SampledFrom([]int{0, 200, 200, 500}).Draw(t, "status")
				took := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Millisecond, quickTime + 1, Timeout - 1}).Draw(t, "took")
				if status == 0 {
					took = Timeout
				}
				for range min(len(c.started), rapid.IntRange(1, 200).Draw(t, "attempts")) {
					c.end(status, took)
				}
			},
			"write": func(*rapid.T) { c.write() },
			"":      func(*rapid.T) { c.check() },
		})
		c.drain()
	})
}

// checkShare checks that the account of a task that was started may have its slot.
func (c *crowd) checkShare(t *task) {
	p, own := &c.pools[t.slot], t.endpoint.tenant.used[t.slot]
	if t.slot == untried {
		if other := c.inFlight - p.used; p.used > p.size || own > 1 && own > untriedShare*(c.slots-other-p.used) {
			c.t.Fatalf("an account makes %d of %d first attempts, and %d places are taken", own, p.used, c.inFlight)
		}
		return
	}
	if p.used > p.size || own > 1 && 2*own > p.size-p.used-p.size/reserved {
		c.t.Fatalf("an account has %d of %d places of class %d, and %d are free", own, p.size, t.slot, p.size-p.used)
	}
}

// check checks the sums, and that no account waits although it may take a slot.
func (c *crowd) check() {
	var used, inFlight [classes]int
	held := 0
	for _, t := range c.tenants {
		held += t.held
		for k := range used {
			used[k] += t.used[k]
			p := &c.pools[k]
			if len(t.waiting[k]) > 0 && room(maxHeld, c.held, t.held) > 0 && (class(k) == quick || c.roomLocked(t, class(k)) > 0) && len(c.wake) == 0 {
				c.t.Fatalf("an account with %d of %d places of class %d waits, though %d are free", t.used[k], p.size, k, p.size-p.used)
			}
		}
	}
	for _, t := range c.started {
		inFlight[t.slot]++
	}
	for k, p := range c.pools {
		if used[k] != p.used || inFlight[k] != p.used || p.used > p.size {
			c.t.Fatalf("%d places of class %d of %d are taken, by %d deliveries and %d of the accounts", p.used, k, p.size, inFlight[k], used[k])
		}
	}
	if held != c.held || held > maxHeld || c.inFlight != len(c.started) || c.inFlight > c.slots {
		c.t.Fatalf("%d are held, the accounts hold %d; %d in flight, and %d were started", c.held, held, c.inFlight, len(c.started))
	}
}

// drain ends all attempts, and checks that everything was given back.
func (c *crowd) drain() {
	c.dispatcher.stop()
	for len(c.started) > 0 {
		c.end(200, time.Millisecond)
	}
	c.write()
	c.check()
	if c.held != 0 || c.inFlight != 0 {
		c.t.Fatalf("%d held and %d in flight after the end, want none", c.held, c.inFlight)
	}
}

// Guarantee: while any number of accounts up to an eighth of the slots have as many as they may,
// an account without any gets one at once.
func TestAccountWithoutSlotsGetsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(64, 2048).Draw(t, "places")
		own := make([]int, rapid.IntRange(1, size/reserved-1).Draw(t, "accounts"))
		used := 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			i := rapid.IntRange(0, len(own)-1).Draw(t, "account")
			if rapid.Bool().Draw(t, "gives back") {
				back := rapid.IntRange(0, own[i]).Draw(t, "back")
				own[i], used = own[i]-back, used-back
				continue
			}
			n := room(size, used, own[i])
			own[i], used = own[i]+n, used+n
			if got := room(size, used, 0); got < 1 {
				t.Fatalf("with %d of %d places taken by %d accounts, another one gets none", used, size, len(own))
			}
		}
	})
}
