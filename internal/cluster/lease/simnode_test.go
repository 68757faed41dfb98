package lease

import (
	"slices"
	"time"
)

// network is how long messages and steps of the server take, and what is lost.
type network struct {
	w             *world
	latency, step time.Duration
	tail          float64 // how much longer one in ten is
	loss, double  float64 // shares of the messages
	down          bool
}

func (n *network) delay(d time.Duration) time.Duration {
	if n.w.Float64() < 0.1 {
		d = time.Duration(float64(d) * n.tail)
	}
	return n.w.upTo(d)
}

// simNode is a node: the goroutines of the product as events, around a Holder and a Watch.
type simNode struct {
	s    *simulation
	name string
	rate float64
	off  time.Duration

	boots   int // processes so far
	dead    bool
	stopped time.Duration // SIGSTOP until then
	cut     time.Duration // no network until then

	holder   *Holder
	calling  bool
	wakes    int
	position Position
	inForce  map[int]bool
	checked  int // the answered changes that are known to be in force here

	denied     map[int]bool // the denials that are loaded
	denials    int          // version of denied
	remembered map[int]int  // versions of denied that the remembered tokens were compared with, by the changes that deny them
	published  int          // rises with each change of the configuration, after it

	watch   *Watch
	waiters []*simWaiter

	following, hinted bool
	follows, polls    int           // numbers the waits of follow and poll
	pause             time.Duration // of the last poll while somebody waits
}

type simWaiter struct {
	id   int
	from time.Duration // when the call began
	at   Position
	gone time.Duration // when it gives up
}

func (n *simNode) clock() Instant { return Instant(float64(n.s.w.now)*n.rate) + Instant(n.off) }

// start starts a process.
func (n *simNode) start() {
	n.boots++
	n.dead, n.calling = false, false
	var boot Boot
	for i := range boot {
		boot[i] = byte(n.s.w.Uint32())
	}
	n.holder = NewHolder(HolderConfig{Node: n.name, Boot: boot, TTL: n.s.ttl, Clock: n.clock, Jitter: n.s.w.Float64})
	n.watch = NewWatch(n.s.ttl, n.clock)
	n.position, n.inForce, n.checked, n.waiters = Position{}, map[int]bool{}, 0, nil
	n.denied, n.denials, n.remembered = map[int]bool{}, 0, map[int]int{}
	n.follow()
	n.poll()
}

func (n *simNode) kill() {
	n.dead = true
	n.boots++
	n.holder.GiveUp()
}

func (n *simNode) running() bool { return !n.dead && n.s.w.now >= n.stopped }
func (n *simNode) admits() bool  { return n.running() && n.holder.Held() }

// cpu runs f when the process runs, unless another process has replaced it by then.
func (n *simNode) cpu(f func()) {
	boot := n.boots
	n.s.w.after(max(0, n.stopped-n.s.w.now), func() {
		switch {
		case n.boots != boot || n.dead:
		case n.s.w.now < n.stopped:
			n.cpu(f)
		default:
			f()
		}
	})
}

// in runs f after d, when the process runs.
func (n *simNode) in(d time.Duration, f func()) {
	boot := n.boots
	n.s.w.after(d, func() {
		if n.boots == boot {
			n.cpu(f)
		}
	})
}

// call sends a message to the store. done gets the reply, or nil after a timeout. Work that the
// store has begun goes on, whatever becomes of the node.
func (n *simNode) call(serve func(reply func(any)), done func(any)) {
	s, net, boot := n.s, n.s.net, n.boots
	finished := false
	finish := func(v any) {
		if !finished && n.boots == boot { // else the reply is for another process
			finished = true
			done(v)
		}
	}
	n.in(s.ttl/8, func() { finish(nil) })
	server := s.store.server
	arrive := func() {
		if net.down || s.w.now < n.cut || s.store.server != server {
			return
		}
		serve(func(v any) {
			s.w.after(net.delay(net.latency), func() {
				if s.w.now >= n.cut && s.w.Float64() >= net.loss {
					n.cpu(func() { finish(v) })
				}
			})
		})
	}
	if s.w.Float64() < net.loss {
		return
	}
	s.w.after(net.delay(net.latency), arrive)
	if s.w.Float64() < net.double {
		s.w.after(net.delay(net.latency*10), arrive)
	}
}

// work makes the calls of the lease.
func (n *simNode) work() {
	if n.calling || n.dead {
		return
	}
	c, wait, due := n.holder.Next(n.position)
	n.wakes++
	if !due {
		wake := n.wakes
		n.in(wait, func() {
			if wake == n.wakes {
				n.work()
			}
		})
		return
	}
	n.calling = true
	n.s.calls++
	n.call(func(reply func(any)) { n.s.store.carry(c, reply) }, func(v any) {
		n.calling = false
		if a, ok := v.(Answer); ok {
			if err := n.holder.Answer(c, a); err != nil {
				n.s.nameInUse++
				n.kill()
				n.s.w.after(n.s.ttl/2, n.start)
				return
			}
			if a.Result == OtherHistory {
				n.position = Position{Number: -1}
			}
		} else {
			n.holder.Failed(c)
		}
		n.s.check(n)
		n.work()
	})
}

// follow reads the change log again and again, and puts in force what it says.
func (n *simNode) follow() {
	n.following, n.hinted = true, false
	n.s.calls++
	n.call(func(reply func(any)) { n.s.store.changes(n.position, reply) }, func(v any) {
		again := func() {
			n.following = false
			if n.hinted {
				n.follow()
				return
			}
			n.follows++
			wait, follows := n.s.w.upTo(n.s.poll), n.follows
			if n.s.product {
				wait += n.s.poll / 2
			}
			n.in(wait, func() {
				if follows == n.follows && !n.following {
					n.follow()
				}
			})
		}
		got, ok := v.(news)
		switch {
		case !ok:
			again()
		case !got.known:
			n.holder.GiveUp()
			n.load(got.changes, true, func() {
				n.inForce, n.checked = map[int]bool{}, 0
				n.apply(Position{}, got.changes)
				again()
			})
		case len(got.changes) > 0:
			n.load(got.changes, false, func() {
				n.apply(n.position, got.changes)
				again()
			})
		default:
			again()
		}
		n.work()
	})
}

// hint notifies the node of a change.
func (n *simNode) hint() {
	if n.dead || n.boots == 0 {
		return
	}
	if n.hinted = true; !n.following {
		n.follow()
	}
}

// load loads the denials among changes, which are all that there are if fresh is set. Some time later it calls done, which
// puts the changes in force.
func (n *simNode) load(changes []simChange, fresh bool, done func()) {
	d := n.s.net.delay(n.s.apply)
	denying := n.s.w.upTo(d)
	n.in(denying, func() {
		if fresh {
			n.denied = map[int]bool{}
			n.denials++
		}
		for _, c := range changes {
			if kindOf(c.id) == denial {
				n.denied[c.id] = true
				n.denials++
			}
		}
		n.in(d-denying, done)
	})
}

func (n *simNode) apply(p Position, changes []simChange) {
	n.published++
	for _, c := range changes {
		n.inForce[c.id] = true
		p = c.Position
	}
	n.position = p
	n.work()
}

// poll reads all leases, ends those that ran out, and answers.
func (n *simNode) poll() {
	waiting := slices.Clone(n.waiters)
	about := make([]Position, len(waiting))
	for i, x := range waiting {
		about[i] = x.at
	}
	n.s.calls++
	n.call(func(reply func(any)) { n.s.store.view(about, reply) }, func(v any) {
		if view, ok := v.(*View); ok {
			n.watch.Saw(view)
			if n.watch.Settled() {
				n.call(func(reply func(any)) { n.s.store.settle(view.Server, reply) }, func(any) {})
			}
			for _, seen := range n.watch.RanOut() {
				n.call(func(reply func(any)) { n.s.store.end(seen, reply) }, func(any) {})
			}
			n.answer(waiting, view)
		}
		pause := n.s.ttl / 10
		if len(n.waiters) > 0 {
			pause = n.s.poll
		}
		if n.s.product {
			n.schedulePoll()
			return
		}
		n.in(n.s.w.upTo(pause), n.poll)
	})
}

// schedulePoll waits as cluster.Waiter does.
func (n *simNode) schedulePoll() {
	pause := min(n.s.ttl/10, time.Second)
	if len(n.waiters) > 0 {
		n.pause = min(max(n.pause*3/2, 2*time.Millisecond), 25*time.Millisecond)
		pause = n.pause
	} else {
		n.pause = 0
	}
	n.polls++
	polls := n.polls
	n.in(pause/2+n.s.w.upTo(pause), func() {
		if polls == n.polls {
			n.poll()
		}
	})
}

// answer answers the changes that are in force everywhere.
func (n *simNode) answer(waiting []*simWaiter, v *View) {
	for _, x := range waiting {
		_, _, ok := n.watch.Confirmed(x.at)
		lost := slices.Contains(v.Unknown, x.at)
		if !ok && !lost && n.s.w.now < x.gone {
			continue
		}
		n.waiters = slices.DeleteFunc(n.waiters, func(y *simWaiter) bool { return x == y })
		if ok && !lost {
			n.s.answered(x.id)
			n.s.took = append(n.s.took, n.s.w.now-x.from)
		}
	}
}

// mutate carries out the change with the given id. If it gets no answer, the caller repeats the call at
// another node.
func (n *simNode) mutate(id, attempts int) {
	from := n.s.w.now
	n.cpu(func() {
		n.call(func(reply func(any)) { n.s.store.mutate(id, reply) }, func(v any) {
			p, ok := v.(Position)
			if !ok {
				if attempts > 0 {
					n.s.any().mutate(id, attempts-1)
				}
				return
			}
			n.waiters = append(n.waiters, &simWaiter{id: id, from: from, at: p, gone: n.s.w.now + 30*time.Second})
			if n.s.product { // the poller is woken
				n.pause = 0
				n.schedulePoll()
			}
		})
	})
}

// attempt is a request with what change id takes away.
func (n *simNode) attempt(id int) {
	switch kindOf(id) {
	case revocation:
		n.request(id)
	case denial:
		n.requestWithToken(id)
	case suspension:
		if n.s.w.IntN(8) == 0 { // since these calls hold up changes
			n.change(id)
		}
	}
}

// request is a request with the key that change id revokes. It looks at the lease and the key when it
// begins, and again before its first byte goes upstream.
func (n *simNode) request(id int) {
	if !n.admits() || n.inForce[id] {
		return
	}
	n.in(n.s.net.delay(n.s.request), func() {
		if !n.admits() || n.inForce[id] {
			return
		}
		if n.s.done[id] && !n.s.lost[id] {
			n.s.violate("a request went upstream after the answer", n, id)
		}
	})
}

// requestWithToken is a request with the token that change id denies. A token that the node remembers is compared with the
// denials again only if their version is another one. Before the first byte goes upstream, the node looks at its lease
// again, and at the denials if anything was published since the request began.
func (n *simNode) requestWithToken(id int) {
	if !n.admits() {
		return
	}
	began := n.published
	forward := func() {
		n.in(n.s.net.delay(n.s.request), func() {
			if !n.admits() || n.published != began && n.denied[id] {
				return
			}
			if n.s.done[id] && !n.s.lost[id] {
				n.s.violate("a denied token went upstream after the answer", n, id)
			}
		})
	}
	version := n.denials
	if compared, found := n.remembered[id]; found {
		if compared != version && n.denied[id] {
			return
		}
		n.remembered[id] = version
		forward()
		return
	}
	n.in(n.s.net.delay(n.s.apply), func() { // the signature
		if n.denied[id] {
			return
		}
		n.in(n.s.net.delay(n.s.apply), func() {
			n.remembered[id] = version
			forward()
		})
	})
}

// change is a call of the user that change id suspends, which changes something itself. The user is read when the call
// begins, and again in the transaction.
func (n *simNode) change(id int) {
	if !n.running() {
		return
	}
	suspended := n.s.done[id] && !n.s.lost[id]
	n.call(func(reply func(any)) { n.s.store.user(id, reply) }, func(v any) {
		if active, ok := v.(bool); !ok || !active {
			return
		}
		if suspended && !n.s.lost[id] {
			n.s.violate("a user was signed in after the answer to its suspension", n, id)
		}
		n.call(func(reply func(any)) {
			n.s.store.changeBy(id, func() {
				if n.s.done[id] && !n.s.lost[id] {
					n.s.violate("a user has changed something after the answer to its suspension", n, id)
				}
			}, reply)
		}, func(any) {})
	})
}
