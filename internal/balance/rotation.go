package balance

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// rotation is smooth weighted round robin, as nginx has it: every target gains its weight, the one with the most is taken and
// loses the sum of all. Targets of equal weight form a class, which gains their weights together; within it they take turns.
//
// Turns are computed in blocks, so that requests only count up and read.
type rotation struct {
	targets []entry
	taken   atomic.Uint64 // turns
	_       [64]byte

	// With one class there are no blocks: turn n is that of target n.
	classes []class
	weights []int64 // of the classes
	credits []int64
	sum     int64      // of the weights
	mu      sync.Mutex // held to compute a block
	ready   atomic.Uint64
	blocks  [2][blockSize]atomic.Uint32
}

const (
	blockSize = 64
	classBits = 20 // of the number of a class
)

// class is the targets of one weight.
type class struct {
	members []int
	turn    int
}

// newRotation returns a rotation of targets. It goes on with that of before if the targets and their weights are the same,
// and otherwise begins at random, by weight.
func newRotation(targets []entry, random func() uint64, before *view) *rotation {
	if before != nil && before.rotation != nil && slices.EqualFunc(before.rotation.targets, targets, func(a, b entry) bool {
		return a.Target == b.Target && a.weight == b.weight
	}) {
		return before.rotation
	}
	r := &rotation{targets: targets}
	of := map[uint64]int{} // the class of a weight
	for i := range targets {
		w := targets[i].weight
		c, is := of[w]
		if !is {
			c = len(r.classes)
			of[w] = c
			r.classes, r.weights = append(r.classes, class{}), append(r.weights, 0)
		}
		r.classes[c].members = append(r.classes[c].members, i)
		r.weights[c] += int64(w)
		r.sum += int64(w)
	}
	for i := range r.classes {
		r.classes[i].turn = int(below(random(), uint64(len(r.classes[i].members))))
	}
	if len(r.classes) == 1 {
		r.taken.Store(uint64(r.classes[0].turn))
	} else if len(r.classes) > 1 {
		r.credits = make([]int64, len(r.classes))
		point := int64(below(random(), uint64(r.sum)))
		for i, w := range r.weights {
			if point < w {
				r.credits[i] = r.sum - w // it is the first
				break
			}
			point -= w
		}
		r.fill(0)
	}
	return r
}

// next returns the target whose turn it is.
func (r *rotation) next() int {
	n := r.taken.Add(1) - 1
	if len(r.classes) == 1 {
		return int(n % uint64(len(r.targets)))
	}
	if n >= r.ready.Load() {
		r.fill(n)
	}
	return int(r.blocks[n/blockSize%2][n%blockSize].Load())
}

// fill computes the block of turn n. If another goroutine does, the block before the last is used once more.
func (r *rotation) fill(n uint64) {
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	if n < r.ready.Load() {
		return
	}
	block := n / blockSize
	for i := range blockSize {
		r.blocks[block%2][i].Store(uint32(r.step()))
	}
	r.ready.Store((block + 1) * blockSize)
}

// step takes a turn. The caller holds the lock.
func (r *rotation) step() int {
	credits := r.credits[:len(r.weights)]
	most := int64(math.MinInt64)
	for i, w := range r.weights {
		credit := credits[i] + w
		credits[i] = credit
		most = max(most, credit<<classBits|int64(i)) // without a branch
	}
	best := int(most & (1<<classBits - 1))
	credits[best] -= r.sum
	c := &r.classes[best]
	if c.turn++; c.turn == len(c.members) {
		c.turn = 0
	}
	return c.members[c.turn]
}
