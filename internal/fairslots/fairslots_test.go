package fairslots

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// crowd is a number of callers that takes slots and gives them back, one step at a time.
type crowd struct {
	slots   *Slots
	held    map[string][]func() // by account
	waiting map[string]int
	order   []string // accounts, in the order in which waiters got a slot
	numbers map[string][]int
	next    int
	granted chan grant
}

type grant struct {
	account string
	number  int
	release func()
}

func newCrowd(cfg Config) *crowd {
	return &crowd{slots: New(cfg), held: map[string][]func(){}, waiting: map[string]int{}, numbers: map[string][]int{}, granted: make(chan grant)}
}

// take asks for a slot in a goroutine of its own, and settles.
func (c *crowd) take(account string) {
	number := c.next
	c.next++
	c.waiting[account]++
	go func() {
		if release, err := c.slots.Take(context.Background(), account); err == nil {
			c.granted <- grant{account, number, release}
		}
	}()
	c.settle()
}

// settle takes note of the slots that were given.
func (c *crowd) settle() {
	for {
		synctest.Wait()
		select {
		case g := <-c.granted:
			c.waiting[g.account]--
			c.held[g.account] = append(c.held[g.account], g.release)
			c.order, c.numbers[g.account] = append(c.order, g.account), append(c.numbers[g.account], g.number)
		default:
			return
		}
	}
}

func (c *crowd) giveBack(account string) {
	release := c.held[account][0]
	c.held[account] = c.held[account][1:]
	release()
	c.settle()
}

// Guarantee: whatever the accounts do, no bound is exceeded, no caller waits while a slot is free
// for its account, and within an account slots are given in the order of the calls.
func TestNobodyWaitsForAFreeSlot(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		cfg := Config{
			PerAccount: rapid.IntRange(1, 3).Draw(r, "per account"), All: rapid.IntRange(0, 5).Draw(r, "all"),
			Waiting: 1000, Wait: time.Hour,
		}
		steps := rapid.SliceOfN(rapid.IntRange(0, 7), 1, 60).Draw(r, "steps")
		synctest.Test(t, func(*testing.T) {
			c := newCrowd(cfg)
			for _, step := range steps {
				account := strconv.Itoa(step / 2)
				switch {
				case step%2 == 0:
					c.take(account)
				case len(c.held[account]) > 0:
					c.giveBack(account)
				}
				c.check(r, cfg)
			}
			for len(c.held) > 0 {
				for account := range c.held {
					if len(c.held[account]) == 0 {
						delete(c.held, account)
						continue
					}
					c.giveBack(account)
				}
				c.check(r, cfg)
			}
			if len(c.slots.accounts) > 0 || len(c.slots.queue) > 0 || c.slots.taken != 0 {
				r.Errorf("got %d accounts, %d in the queue and %d slots taken at the end, want none", len(c.slots.accounts), len(c.slots.queue), c.slots.taken)
			}
		})
	})
}

func (c *crowd) check(r *rapid.T, cfg Config) {
	all := 0
	for _, held := range c.held {
		all += len(held)
	}
	if cfg.All > 0 && all > cfg.All {
		r.Errorf("got %d slots held in all, want at most %d", all, cfg.All)
	}
	for account, waiting := range c.waiting {
		held := len(c.held[account])
		if held > cfg.PerAccount {
			r.Errorf("got %d slots held by one account, want at most %d", held, cfg.PerAccount)
		}
		if waiting > 0 && held < cfg.PerAccount && (cfg.All == 0 || all < cfg.All) {
			r.Errorf("account %s waits with %d slots held, %d in all; want it to have one", account, held, all)
		}
	}
	for account, numbers := range c.numbers {
		if !slices.IsSorted(numbers) {
			r.Errorf("got slots of account %s in the order %v, want that of asking", account, numbers)
		}
	}
}

// Guarantee: accounts that wait for the last slot get it in turn, however many callers of one
// account wait.
func TestAccountsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(Config{PerAccount: 2, All: 2, Waiting: 100, Wait: time.Hour})
		for range 10 {
			c.take("greedy")
		}
		c.take("a")
		c.take("b")
		c.take("a")
		for c.slots.taken > 0 {
			for _, account := range []string{"greedy", "a", "b"} {
				if len(c.held[account]) > 0 {
					c.giveBack(account)
					break
				}
			}
		}
		want := []string{"greedy", "greedy", "greedy", "a", "b"}
		if got := c.order[:5]; !slices.Equal(got, want) {
			t.Errorf("got slots in the order %v, want %v", got, want)
		}
		if i := slices.Index(c.order[5:], "a"); i < 0 || i > 1 {
			t.Errorf("got slots in the order %v, want the second of a at most two after that of b", c.order)
		}
	})
}

// Guarantee: waiting ends after the configured time with ErrNone, or with the context; who
// left is not given a slot later.
func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{PerAccount: 1, All: 8, Waiting: 2, Wait: 10 * time.Second})
		release, err := p.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := p.Take(t.Context(), "a"); !errors.Is(err, ErrNone) || time.Since(start) != 10*time.Second {
			t.Errorf("got %v after %s, want ErrNone after 10s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Take(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the error of the context", err)
		}
		release()
		release() // does nothing
		if len(p.accounts) != 0 || len(p.queue) != 0 || p.taken != 0 {
			t.Errorf("got %d accounts, %d in the queue, %d taken; want none", len(p.accounts), len(p.queue), p.taken)
		}
	})
}

// Guarantee: one more than may wait is refused at once.
func TestWaitersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(Config{PerAccount: 1, Waiting: 2, Wait: time.Hour})
		c.take("a")
		c.take("a")
		c.take("a")
		start := time.Now()
		if _, err := c.slots.Take(t.Context(), "a"); !errors.Is(err, ErrNone) || time.Since(start) != 0 {
			t.Errorf("got %v after %s, want ErrNone at once", err, time.Since(start))
		}
		c.take("b")
		if len(c.held["b"]) != 1 {
			t.Error("got no slot for another account, want one")
		}
		c.giveBack("b")
		for range 3 {
			c.giveBack("a")
		}
	})
}
