package ratelimit

import (
	"context"
	"errors"
	"math/big"
	"sync"
	"sync/atomic"
	"time"
)

// memoryLimitStore is a LimitStore in memory, with exact arithmetic and faults. Package limitstore
// compares the real store with the same arithmetic.
type memoryLimitStore struct {
	mu         sync.Mutex
	buckets    map[string]*memoryBucket
	generation int64
	trips      int
	births     int64

	down  bool          // refuses every call
	hangs bool          // never answers, and does nothing
	mute  bool          // does what is asked, and never answers
	delay time.Duration // of a question, and of its answer
}

type memoryBucket struct {
	take  Take
	used  *big.Rat
	back  *big.Rat
	given []memoryGift
	time  time.Time
	born  int64
	nodes map[string]*memoryNode
}

type memoryNode struct {
	held, debtNumber, charged int64
	seen                      time.Time
}

func newMemoryLimitStore() *memoryLimitStore {
	return &memoryLimitStore{buckets: map[string]*memoryBucket{}, delay: 500 * time.Microsecond}
}

// wipe empties the store: as a restart does, or so that nothing but the lost buckets shows it.
func (s *memoryLimitStore) wipe(restart bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.buckets)
	if restart {
		s.generation++
	}
}

// set changes the faults.
func (s *memoryLimitStore) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// nodeStore is the store as one node sees it.
type nodeStore struct {
	*memoryLimitStore
	node string
	away *atomic.Bool // this node alone cannot reach it; or nil
}

// wait waits as the store does, unless the node is cut off.
func (s nodeStore) wait(ctx context.Context) error {
	if s.away != nil && s.away.Load() {
		return errLimitStore
	}
	return s.memoryLimitStore.wait(ctx)
}

var errLimitStore = errors.New("the limit store is down")

// wait lets the time of the delay pass, or ctx.Err() if the store hangs.
func (s *memoryLimitStore) wait(ctx context.Context) error {
	s.mu.Lock()
	delay, hangs, down := s.delay, s.hangs, s.down
	s.mu.Unlock()
	if down {
		return errLimitStore
	}
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *memoryLimitStore) Generation() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

func (s nodeStore) Check(ctx context.Context) error {
	err := s.wait(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.mute {
		return errLimitStore
	}
	return nil
}

func (s nodeStore) Ask(ctx context.Context, questions []Question) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	answers := make([]Question, len(questions))
	s.mu.Lock()
	s.trips++
	mute := s.mute
	for i, q := range questions {
		q.Takes = append([]Take(nil), q.Takes...)
		s.answer(s.node, &q)
		answers[i] = q
	}
	s.mu.Unlock()
	if mute {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := s.wait(ctx); err != nil {
		return err
	}
	for i := range answers {
		answers[i].Answered = true
	}
	copy(questions, answers)
	return nil
}

func (s *memoryLimitStore) answer(node string, q *Question) {
	now := time.Now()
	q.Admitted = q.Requests
	for i := range q.Takes {
		t := &q.Takes[i]
		b := s.buckets[t.Name]
		if b == nil {
			s.births++
			b = &memoryBucket{take: *t, used: new(big.Rat), back: new(big.Rat).SetInt64(now.UnixMicro()), time: now, born: s.births, nodes: map[string]*memoryNode{}}
			s.buckets[t.Name] = b
		}
		if !t.Force && b.take.Version > t.Version && b.take.Capacity != t.Capacity {
			t.Behind, t.Newer, q.Admitted = true, b.take.Version, 0
			return
		}
		b.elapse(now)
		b.take.Capacity, b.take.Count, b.take.Per, b.take.Version = t.Capacity, t.Count, t.Per, t.Version
		if b.nodes[node] == nil {
			b.nodes[node] = &memoryNode{}
		}
		n := b.nodes[node]
		t.Born = b.born
		unknown := t.Birth == AnyBirth || t.Birth != 0 && t.Birth != b.born
		if known := new(big.Rat).SetInt64(t.Known); unknown && known.Cmp(b.used) > 0 {
			b.used.Set(known)
		}
		b.clamp()
		if (t.Debt > 0 || len(t.Gifts) > 0) && t.DebtNumber > n.debtNumber {
			for _, g := range t.Gifts {
				b.giveBack(g)
			}
			n.debtNumber, n.charged = t.DebtNumber, min(t.Debt, b.free())
			b.charge(n.charged)
		}
		t.Charged = n.charged
		q.Admitted = min(q.Admitted, b.free()/t.Amount)
	}
	for i := range q.Takes {
		t := &q.Takes[i]
		b := s.buckets[t.Name]
		b.charge(q.Admitted * t.Amount)
		if n := b.nodes[node]; t.Left >= 0 {
			others := int64(0)
			for name, other := range b.nodes {
				if name != node && now.Sub(other.seen) < 1100*time.Millisecond {
					others += other.held
				}
			}
			t.Granted = max(0, min(t.Ahead, b.free(), t.Outstanding-others-t.Left))
			b.charge(t.Granted)
			n.held, n.seen = t.Left+t.Granted, now
		}
		whole := new(big.Int).Div(b.used.Num(), b.used.Denom())
		part := new(big.Rat).Sub(b.used, new(big.Rat).SetInt(whole))
		part.Mul(part, new(big.Rat).SetInt64(t.Per))
		up := new(big.Int).Add(part.Num(), new(big.Int).Sub(part.Denom(), big.NewInt(1)))
		t.Time = b.time.UnixMicro()
		level := new(big.Rat).Add(b.used, b.back)
		t.Level = floorRat(level)
		level.Sub(level, new(big.Rat).SetInt64(t.Level))
		t.LevelPart = floorRat(level.Mul(level, new(big.Rat).SetInt64(t.Per)))
		t.Used, t.Part = whole.Int64(), up.Div(up, part.Denom()).Int64()
	}
}

func (b *memoryBucket) elapse(now time.Time) {
	gain := new(big.Rat).SetFrac(big.NewInt(now.Sub(b.time).Microseconds()*b.take.Count), big.NewInt(b.take.Per))
	b.time = b.time.Add(time.Duration(now.Sub(b.time).Microseconds()) * time.Microsecond)
	b.used.Sub(b.used, gain)
	b.clamp()
}

func (b *memoryBucket) clamp() {
	if b.used.Sign() < 0 {
		b.used.SetInt64(0)
	}
	if full := new(big.Rat).SetInt64(b.take.Capacity); b.used.Cmp(full) > 0 {
		b.used.Set(full)
	}
}

// memoryGift is what of a gift was given back.
type memoryGift struct {
	Gift
	worth *big.Rat
}

func (b *memoryBucket) giveBack(g Gift) {
	worth := big.NewRat(g.Part, b.take.Per)
	worth.Add(worth, new(big.Rat).SetInt64(g.Level))
	worth.Sub(worth, b.back)
	for _, other := range b.given {
		if other.Time > g.Time || other.Time == g.Time && other.Level > g.Level {
			worth.Add(worth, other.worth)
		}
	}
	worth.Sub(worth, big.NewRat((b.time.UnixMicro()-g.Time)*b.take.Count, b.take.Per))
	for _, most := range []*big.Rat{new(big.Rat).SetInt64(g.Amount), b.used} {
		if worth.Cmp(most) > 0 {
			worth.Set(most)
		}
	}
	if worth.Sign() > 0 {
		b.used.Sub(b.used, worth)
		b.back.Add(b.back, worth)
		b.given = append(b.given, memoryGift{g, worth})
	}
}

func (b *memoryBucket) charge(n int64) { b.used.Add(b.used, new(big.Rat).SetInt64(n)) }

func (b *memoryBucket) free() int64 {
	left := new(big.Rat).Sub(new(big.Rat).SetInt64(b.take.Capacity), b.used)
	return new(big.Int).Div(left.Num(), left.Denom()).Int64()
}
