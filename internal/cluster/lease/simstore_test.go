package lease

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// simChange is a committed change. Its id identifies the change even if its number is used again.
type simChange struct {
	Position
	id int
	at time.Duration
}

// changeKind is what a change takes away.
type changeKind int

const (
	revocation changeKind = iota // a key
	denial                       // a token
	suspension                   // a user
	changeKinds
)

// kindOf returns the kind of the change with the given id. Each kind has its share of the changes.
func kindOf(id int) changeKind { return changeKind(id % int(changeKinds)) }

// simStore is the store of the simulation: it takes its locks and sees its snapshots in the order in
// which PostgreSQL does, and leaves the rules to Carry and Row.End.
type simStore struct {
	w       *world
	net     *network
	log     []simChange // by number
	rows    map[string]Row
	head    *headLock
	server  int
	settled map[int]bool
	next    int64 // number of the newest change
	ids     map[int]bool
	notify  func() // of a commit; may be nil
}

func newSimStore(w *world, net *network) *simStore {
	return &simStore{w: w, net: net, rows: map[string]Row{}, head: &headLock{}, settled: map[int]bool{0: true}, ids: map[int]bool{}}
}

// step runs f after one step of the server, unless the server is gone by then.
func (s *simStore) step(f func()) {
	server := s.server
	s.w.after(s.net.delay(s.net.step), func() {
		if s.server == server {
			f()
		}
	})
}

func (s *simStore) newest() Position {
	if len(s.log) == 0 {
		return Position{}
	}
	return s.log[len(s.log)-1].Position
}

// copy returns what a replica has.
func (s *simStore) copy() *simStore {
	return &simStore{
		w: s.w, net: s.net, log: slices.Clone(s.log), rows: maps.Clone(s.rows), head: &headLock{},
		server: s.server, settled: maps.Clone(s.settled), next: s.newest().Number, ids: maps.Clone(s.ids),
	}
}

// settle records that the time of a lease has passed on a server.
func (s *simStore) settle(server string, reply func(any)) {
	s.step(func() {
		if server == strconv.Itoa(s.server) {
			s.settled[s.server] = true
		}
		reply(true)
	})
}

// find returns the index of the first change after number.
func (s *simStore) find(number int64) int {
	i, _ := slices.BinarySearchFunc(s.log, number+1, func(c simChange, n int64) int { return int(c.Number - n) })
	return i
}

func (s *simStore) knows(p Position) bool {
	if p == (Position{}) {
		return true
	}
	i := s.find(p.Number - 1)
	return i < len(s.log) && s.log[i].Position == p
}

func (s *simStore) about(c *Call) Log {
	l := Log{Known: s.knows(c.Position), Newest: s.newest()}
	if i := s.find(c.Position.Number); i < len(s.log) {
		l.Overdue = s.w.now-s.log[i].at > c.TTL/3
	}
	return l
}

// carry carries a call out.
func (s *simStore) carry(c Call, reply func(any)) {
	if c.Kind == Join {
		s.join(c, reply)
		return
	}
	s.step(func() { reply(s.store(&c, s.about(&c))) })
}

// join locks out mutations, and then reads which change is the newest.
func (s *simStore) join(c Call, reply func(any)) {
	s.head.lock(false, func() {
		s.step(func() {
			about := s.about(&c)
			s.step(func() {
				a := s.store(&c, about)
				s.head.unlock()
				reply(a)
			})
		})
	})
}

func (s *simStore) store(c *Call, about Log) Answer {
	var before *Row
	if r, ok := s.rows[c.Node]; ok {
		before = &r
	}
	r, a := Carry(before, c, about)
	if a.Result == Done {
		s.rows[c.Node] = r
	}
	return a
}

func (s *simStore) end(seen Seen, reply func(any)) {
	s.step(func() {
		r := s.rows[seen.Node]
		next, ok := r.End(seen)
		if ok {
			s.rows[seen.Node] = next
		}
		reply(ok)
	})
}

// view reads all rows.
func (s *simStore) view(about []Position, reply func(any)) {
	s.step(func() {
		v := &View{Server: strconv.Itoa(s.server), Settled: s.settled[s.server]}
		for _, node := range slices.Sorted(maps.Keys(s.rows)) {
			v.Rows = append(v.Rows, s.rows[node])
		}
		for _, p := range about {
			if !s.knows(p) {
				v.Unknown = append(v.Unknown, p)
			}
		}
		reply(v)
	})
}

// mutate commits the change with the given id, or finds that it was committed before, and replies with
// the head that its transaction saw.
func (s *simStore) mutate(id int, reply func(any)) {
	s.head.lock(true, func() {
		s.next++
		number := s.next
		s.step(func() {
			if s.ids[id] {
				s.next--
				s.head.unlock()
				reply(s.newest())
				return
			}
			p := s.commit(number, id)
			s.head.unlock()
			reply(p)
		})
	})
}

func (s *simStore) commit(number int64, id int) Position {
	p := Position{Number: number}
	for i := range p.Mark {
		p.Mark[i] = byte(s.w.Uint32())
	}
	s.ids[id] = true
	s.log = slices.Insert(s.log, s.find(number), simChange{Position: p, id: id, at: s.w.now})
	if s.notify != nil {
		s.notify()
	}
	return p
}

// user replies whether the user that the change with the given id suspends is active.
func (s *simStore) user(id int, reply func(any)) {
	s.step(func() { reply(!s.ids[id]) })
}

// changeBy carries out a change by the user that the change with the given id suspends, unless it is suspended by then. It
// calls committed at the commit. The change itself concerns nobody, so it is not in the log.
func (s *simStore) changeBy(id int, committed func(), reply func(any)) {
	s.head.lock(true, func() {
		s.step(func() {
			if !s.ids[id] {
				committed()
			}
			s.head.unlock()
			reply(true)
		})
	})
}

// news is what a node reads of the change log.
type news struct {
	known   bool // else changes are all that there are
	changes []simChange
}

func (s *simStore) changes(after Position, reply func(any)) {
	s.step(func() {
		if !s.knows(after) {
			reply(news{changes: slices.Clone(s.log)})
			return
		}
		reply(news{known: true, changes: slices.Clone(s.log[s.find(after.Number):])})
	})
}

// headLock is the lock of the head row: shared by joins, exclusive for mutations, and fair.
type headLock struct {
	shared    int
	exclusive bool
	queue     []headWaiter
}

type headWaiter struct {
	exclusive bool
	run       func()
}

func (l *headLock) lock(exclusive bool, f func()) {
	l.queue = append(l.queue, headWaiter{exclusive, f})
	l.grant()
}

func (l *headLock) unlock() {
	if l.exclusive {
		l.exclusive = false
	} else {
		l.shared--
	}
	l.grant()
}

func (l *headLock) grant() {
	for len(l.queue) > 0 {
		first := l.queue[0]
		if l.exclusive || first.exclusive && l.shared > 0 {
			return
		}
		l.queue = l.queue[1:]
		if l.exclusive = first.exclusive; !l.exclusive {
			l.shared++
		}
		first.run()
	}
}
