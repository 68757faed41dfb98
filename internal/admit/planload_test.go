package admit

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/owner"
)

// planLoad is 64 goroutines that make requests with all keys of a model, and what they were charged to.
type planLoad struct {
	*planModel
	owned map[string]string // the owner's identifier by the key's, or the key's own

	// While it is odd, the first owner is suspended, and the call that suspended it has returned.
	suspensions atomic.Int64
	done        atomic.Bool

	mu      sync.Mutex
	charged map[string]int // by label and subject
	wrong   string
}

func (l *planLoad) run(seed uint64) {
	random, v := rand.New(rand.NewPCG(seed, 1)), new(Verdict)
	for i := 0; i < 100 || !l.done.Load() && i < 100_000; i++ {
		l.request(random.IntN(len(l.keys)), v)
	}
}

// request makes a request with a key.
func (l *planLoad) request(k int, v *Verdict) {
	req := Request{Method: "GET", Host: "any.example", Target: "/", Authorization: "Bearer " + l.secrets[k], Authorizations: 1}
	before := l.suspensions.Load()
	l.admit.Decide(&req, v)
	suspended := before%2 == 1 && before == l.suspensions.Load() && l.keys[k].OwnerID == l.owners[0].ID
	result := v.result()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case suspended && result != accesslog.OwnerSuspended:
		l.wrong = fmt.Sprintf("a key of a suspended owner: result %d", result)
	case result == accesslog.Forwarded:
		for _, bucket := range l.admitted(v, l.owned) {
			l.charged[bucket]++
		}
	case result != accesslog.Limited && result != accesslog.OwnerSuspended:
		l.wrong = fmt.Sprintf("result %d: %v", result, v.Fault())
	}
}

// change edits and deletes plans, moves the second owner between plans, and suspends the first one.
func (l *planLoad) change() {
	first, second, v := l.owners[0], l.owners[1], new(Verdict)
	for i := range 40 {
		l.plans[0].Limits = l.planLimits(fmt.Sprintf("together owner %d/day", 100+10*i), fmt.Sprintf("each key %d/day", 50+5*i))
		l.source.PutPlan(l.plans[0])
		second.PlanID = l.plans[i%2].ID
		l.source.PutOwner(second)
		extra := l.plan("extra", "each key 3/day")
		first.State = owner.Suspended
		l.source.PutOwner(first)
		l.catchUp()
		l.suspensions.Add(1)
		for k := range l.keys { // the others may be too slow to see it
			l.request(k, v)
		}
		l.source.DeletePlan(extra.ID)
		l.catchUp()
		l.suspensions.Add(1)
		first.State = owner.Active
		l.source.PutOwner(first)
		l.catchUp()
	}
	l.done.Store(true)
}

// Guarantee: while 64 callers make requests, and plans are edited and deleted, owners moved and suspended, no limit admits
// more than it ever allows, none less once everything stands still, and no key of a suspended owner is admitted after the
// call that suspends it has returned.
func TestPlansUnderLoad(t *testing.T) {
	l := &planLoad{planModel: newPlanModel(t), charged: map[string]int{}, owned: map[string]string{}}
	l.plans[0].Limits, l.plans[1].Limits = l.planLimits("together owner 100/day", "each key 50/day"), l.planLimits("together owner 70/day")
	for i := range 2 {
		l.source.PutPlan(l.plans[i])
		l.owners[i].PlanID = l.plans[i].ID
		l.source.PutOwner(l.owners[i])
	}
	l.harness.gateway(byDefault(l.plans[0].ID), route("/", "GET"))
	for i := range l.keys {
		k := &l.keys[i]
		l.owned[k.ID] = k.ID
		if i < 3 { // the last one has no owner
			k.Owner, k.OwnerID = l.owners[i%2].ExternalID, l.owners[i%2].ID
			l.owned[k.ID] = k.OwnerID
		}
		l.source.PutKey(*k)
	}
	l.catchUp()
	var all sync.WaitGroup
	for i := range uint64(64) {
		all.Go(func() { l.run(i) })
	}
	l.change()
	all.Wait()
	for range 40 { // until everything is used up
		l.run(99)
	}
	if l.wrong != "" {
		t.Error(l.wrong)
	}
	for bucket, n := range l.charged {
		most := map[string]int{"p0.together": 490, "p0.each": 245, "p1.together": 70}[strings.Fields(bucket)[0]]
		if n > most {
			t.Errorf("%s: %d requests were admitted, want at most %d", bucket, n, most)
		}
	}
	// The first owner has two keys with 245 each, which its 490 allow.
	if got := l.charged["p0.together "+l.owners[0].ID]; got != 490 {
		t.Errorf("%d requests of the first owner were admitted, want 490", got)
	}
	if got := l.charged["p0.each "+l.keys[3].ID]; got != 245 {
		t.Errorf("%d requests of the key without owner were admitted, want 245", got)
	}
}
