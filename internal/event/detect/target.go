package detect

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/event"
)

// Bounds of the memory for targets, and of their events (targets.md, section 3).
const (
	maxTargets        = 1 << 15 // that have been down lately, of all accounts
	maxAccountTargets = 1 << 12
	maxUpstreams      = 10 // that an event names

	// targetInterval is the least time between two events of one target and type, and after which targets are looked at again
	// that may be gone.
	targetInterval = 10 * time.Second
)

// targets are the addresses that are down, or were lately. One is up until a transition says otherwise.
//
// While mu is held, package balance is not called where it takes a lock: NoteTarget is called with an address's lock held.
type targets struct {
	mu       sync.Mutex
	all      map[balance.Key]*target
	accounts map[string]int       // how many of all
	untold   map[*target]struct{} // whose state is not that of the last event
	lookAt   time.Time            // when all are looked at again; zero if there are none
}

// target is an address.
type target struct {
	key     balance.Key
	address *balance.Address
	down    map[string]struct{} // the checks by which it is down, "" for an ejection
	reason  string              // of the last change
	isTold  bool                // down, by the last event
	changes int64               // between down and up since that event
	next    [2]time.Time        // earliest time of the next event that it is up, and that it is down
}

func newTargets() targets {
	return targets{all: map[balance.Key]*target{}, accounts: map[string]int{}, untold: map[*target]struct{}{}}
}

func (t *target) isDown() bool { return len(t.down) > 0 }

// due returns the earliest time of the next event, if the state is not that of the last one.
func (t *target) due() time.Time { return t.next[t.index()] }

func (t *target) index() int {
	if t.isDown() {
		return 1
	}
	return 0
}

// NoteTarget notes a transition of the state of a target. It is a balance.Sink: it neither blocks nor calls package balance in a
// way that takes a lock. Transitions of one address are combined.
func (d *Detector) NoteTarget(t balance.Transition) {
	if d.noteTarget(t) {
		d.work.Notify()
	}
}

// noteTarget reports whether there may be an event to write.
func (d *Detector) noteTarget(t balance.Transition) bool {
	s := &d.targets
	s.mu.Lock()
	defer s.mu.Unlock()
	key, goesDown := t.Address.Key(), t.State != balance.Healthy
	one := s.all[key]
	if one == nil {
		switch {
		case !goesDown:
			return false
		case s.accounts[key.Account] >= maxAccountTargets, len(s.all) >= maxTargets:
			d.lost.Add(1)
			return false
		}
		one = &target{key: key}
		s.all[key] = one
		s.accounts[key.Account]++
		if s.lookAt.IsZero() {
			s.lookAt = d.cfg.Now().Add(targetInterval)
		}
	}
	if one.address != t.Address { // it was gone meanwhile
		one.address, one.down = t.Address, map[string]struct{}{}
	}
	was := one.isDown()
	if goesDown {
		one.down[t.Check] = struct{}{}
	} else {
		delete(one.down, t.Check)
	}
	if goesDown || was && !one.isDown() {
		one.reason = t.Reason
	}
	return s.settle(one, was)
}

// settle is called after each change to a target, with whether it was down before. It reports whether a new event is to be sent.
func (s *targets) settle(t *target, was bool) bool {
	if t.isDown() != was {
		t.changes++
	}
	if t.isDown() == t.isTold {
		delete(s.untold, t)
		return false
	}
	_, known := s.untold[t]
	s.untold[t] = struct{}{}
	return !known
}

func (s *targets) forget(t *target) {
	delete(s.all, t.key)
	delete(s.untold, t)
	if s.accounts[t.key.Account]--; s.accounts[t.key.Account] == 0 {
		delete(s.accounts, t.key.Account)
	}
	if len(s.all) == 0 {
		s.lookAt = time.Time{}
	}
}

// untilTarget returns the time until the next event of a target is due, or targets are looked at again.
func (d *Detector) untilTarget(now time.Time) time.Duration {
	s := &d.targets
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := time.Hour
	if !s.lookAt.IsZero() {
		wait = s.lookAt.Sub(now)
	}
	for t := range s.untold {
		wait = min(wait, t.due().Sub(now))
	}
	return max(0, wait)
}

// hasUntold reports whether there is a target whose state is not that of its last event.
func (d *Detector) hasUntold() bool {
	d.targets.mu.Lock()
	defer d.targets.mu.Unlock()
	return len(d.targets.untold) > 0
}

// gatherTargets creates up to maxBatch due events of targets.
func (d *Detector) gatherTargets(last bool) ([]event.Event, error) {
	now := d.cfg.Now()
	d.lookAtTargets(now)
	var made []event.Event
	for _, c := range d.takeChanges(now, last) {
		data := event.TargetState{Target: c.address.Key().Address, Upstreams: upstreamsOf(c.address), Reason: c.reason, Count: c.changes}
		if d.cfg.Node != "" {
			data.Node = &d.cfg.Node
		}
		if len(data.Upstreams) == 0 {
			continue // nothing has the target any more
		}
		e, err := event.New(c.address.Key().Account, c.typ, now, data)
		if err != nil {
			return nil, err
		}
		made = append(made, e)
	}
	return made, nil
}

// targetChange is a change of a target that makes an event.
type targetChange struct {
	address *balance.Address
	typ     event.Type
	reason  string
	changes int64
}

// takeChanges returns up to maxBatch changes that are due, or any if last, as told.
func (d *Detector) takeChanges(now time.Time, last bool) (list []targetChange) {
	s := &d.targets
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.untold {
		i := t.index()
		switch {
		case len(list) == maxBatch:
			return list
		case last:
		case t.next[i].After(now):
			continue
		case !d.mayRaise(t.key.Account, typeOf(t), now): // it is told later
			t.next[i] = now.Add(minInterval)
			continue
		}
		list = append(list, targetChange{t.address, typeOf(t), t.reason, t.changes})
		delete(s.untold, t)
		t.isTold, t.changes, t.next[i] = t.isDown(), 0, now.Add(targetInterval)
	}
	return list
}

// typeOf returns the type of the next event of a target.
func typeOf(t *target) event.Type {
	if t.isDown() {
		return event.UpstreamTargetDown
	}
	return event.UpstreamTargetUp
}

// upstreamsOf returns up to maxUpstreams upstreams that have an address, in order.
func upstreamsOf(a *balance.Address) []event.UpstreamRef {
	var all []event.UpstreamRef
	a.Upstreams(func(n balance.Name) bool {
		all = append(all, event.UpstreamRef{GatewayID: n.Gateway, Upstream: n.Upstream})
		return len(all) < maxUpstreams
	})
	slices.SortFunc(all, func(a, b event.UpstreamRef) int {
		return cmp.Or(cmp.Compare(a.GatewayID, b.GatewayID), cmp.Compare(a.Upstream, b.Upstream))
	})
	return all
}

// lookAtTargets forgets, when it is time for that, targets that have been up for long enough, and those that no upstream has any
// more, of which no event tells. A check that has ended, because the settings were changed, keeps no target down.
func (d *Detector) lookAtTargets(now time.Time) {
	s := &d.targets
	s.mu.Lock()
	isTime := !s.lookAt.IsZero() && !s.lookAt.After(now)
	var all []*balance.Address
	if isTime {
		s.lookAt = now.Add(targetInterval)
		for _, t := range s.all {
			all = append(all, t.address)
		}
	}
	s.mu.Unlock()
	if !isTime {
		return
	}
	gone := map[*balance.Address]bool{}
	for _, a := range all {
		gone[a] = true
		a.Upstreams(func(balance.Name) bool { gone[a] = false; return false })
	}
	checks := d.checksOf(gone)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		isGone, known := gone[t.address]
		switch {
		case !known: // it came meanwhile
		case isGone, !t.isDown() && !t.isTold && !t.next[0].After(now) && !t.next[1].After(now):
			s.forget(t)
		default:
			s.endChecks(t, checks[t.address])
		}
	}
}

// checksOf returns the checks that each of some addresses has.
func (d *Detector) checksOf(of map[*balance.Address]bool) map[*balance.Address][]string {
	checks := map[*balance.Address][]string{}
	if len(of) > 0 && d.cfg.Healths != nil {
		d.cfg.Healths(func(h *balance.Health, c balance.Check) bool {
			if _, known := of[h.Address()]; known {
				checks[h.Address()] = append(checks[h.Address()], c.ID)
			}
			return true
		})
	}
	return checks
}

// endChecks ends what checks have found that the target does not have any more.
func (s *targets) endChecks(t *target, checks []string) {
	was := t.isDown()
	for id := range t.down {
		if id != "" && !slices.Contains(checks, id) {
			delete(t.down, id)
		}
	}
	if was && !t.isDown() {
		t.reason = "changed"
	}
	s.settle(t, was)
}
