package ratelimit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/id"
)

// Guarantee: a charge may have as many limits as two plans and everything else have. It takes all of them or none, gives all
// of them back, and Keep leaves those that it should.
func TestChargeOfManyLimits(t *testing.T) {
	p := CompileRate(Rate{Count: 3, Per: time.Hour})
	now := Instant{Mono: int64(time.Hour), Wall: startWall}
	l := NewLimiter(func() int64 { return now.Mono })
	for n := 1; n <= maxLimits; n++ {
		buckets := make([]Bucket, n)
		var c Charge
		add := func() {
			for i := range buckets {
				scope := PlanScope
				if i == n-1 {
					scope = GlobalScope
				}
				c.Add(Limit{Scope: scope, Label: NewLabel("pro", fmt.Sprint(i), Requests), Params: &p, Bucket: &buckets[i]}, 1)
			}
		}
		decide := func() Result {
			c.Clear()
			add()
			return l.Decide(now, &c)
		}
		for range 2 { // the second one is given back
			if r := decide(); r != Admitted || c.Shown() != n {
				t.Fatalf("%d limits: got %d with %d statuses, want all admitted", n, r, c.Shown())
			}
		}
		l.Release(&c)
		for want := int64(1); want >= 0; want-- {
			if r := decide(); r != Admitted || c.Worst().Remaining != want || c.Status(0).Remaining != want {
				t.Fatalf("%d limits: got %d with %d left, want it admitted with %d left", n, r, c.Worst().Remaining, want)
			}
		}
		if r := decide(); r != Refused || c.Worst().Label == nil || strings.Count(string(c.AppendLimits(nil)), `"pro.`) != n {
			t.Errorf("%d limits: got %d and RateLimit %s, want a refusal", n, r, c.AppendLimits(nil))
		}
		c.Keep(GlobalScope)
		if l.Peek(now, &c); c.Shown() != 1 || c.Status(0).Scope != GlobalScope {
			t.Errorf("%d limits: %d are kept, the first of the scope %s, want the global one", n, c.Shown(), c.Status(0).Scope)
		}
	}
}

// Guarantee: buckets of different limits of a plan, and of the same limit for different subjects, have different names in the
// limit store, and those of an account are kept together.
func TestNamesOfPlanLimits(t *testing.T) {
	seen := map[string]bool{}
	for _, of := range []*PlanLimit{nil, {"a", id.Key}, {"b", id.Key}, {"a", id.Owner}} {
		for _, subject := range []byte{1, 2} {
			n := Name{Account: "acct_1", Kind: id.Plan, Owner: [16]byte{9}, Of: of, Key: [16]byte{subject}}
			name := n.String()
			if seen[name] || !strings.HasPrefix(name, "{acct_1}:plan_") {
				t.Errorf("got the name %s a second time, or without its account", name)
			}
			seen[name] = true
		}
	}
}
