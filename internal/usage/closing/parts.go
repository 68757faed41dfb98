package closing

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/usage"
)

// mostParts and mostBytes bound what one closing reads, removes and writes, so that its transaction is short.
const (
	mostParts = 64
	mostBytes = 1 << 20
)

// foundAtOnce is how many parts one read of the store finds.
const foundAtOnce = 1000

// part is a chunk or a block, by its number, with the least identity of its uses.
type part struct {
	first  usage.Identity
	number int64
}

// parts are chunks or blocks of which records are to be made. They are taken by their least identities: parts that are
// taken together have much of the same identities, and what is taken later has few of them.
type parts struct {
	// read calls f for each part that exists, in the order of the numbers, until f returns an error, which it returns.
	read func(numbers []int64, f func(number int64, body []byte) error) error
	// mostParts and mostBytes bound what is taken together: at least 2 parts.
	mostParts, mostBytes int
	list                 byFirst
}

// find adds those parts that exist.
func (p *parts) find(numbers []int64) error {
	for len(numbers) > 0 {
		some := numbers[:min(len(numbers), foundAtOnce)]
		numbers = numbers[len(some):]
		err := p.read(some, func(number int64, body []byte) error {
			first, err := usage.First(body)
			if err != nil {
				return fmt.Errorf("part %d: %w", number, err)
			}
			heap.Push(&p.list, part{first, number})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds what a closing has kept.
func (p *parts) add(kept []usage.Body, numbers []int64) {
	for i, number := range numbers {
		heap.Push(&p.list, part{kept[i].First, number})
	}
}

// errEnough stops reading early.
var errEnough = errors.New("enough")

// take takes parts, as many as one closing may have, and adds them to a sum, the oldest first: the texts of a record are those
// of its first request. It takes at least two if there are two. If another node has taken one of them, the error is
// fault.Conflict.
func (p *parts) take(sum *usage.Table, add func(body []byte) error) (numbers []int64, err error) {
	var taken []part
	for len(taken) < p.mostParts && len(p.list) > 0 {
		taken = append(taken, heap.Pop(&p.list).(part))
	}
	slices.SortFunc(taken, func(a, b part) int { return cmp.Compare(a.number, b.number) })
	for _, t := range taken {
		numbers = append(numbers, t.number)
	}
	n := 0
	gone := fault.New(fault.Conflict, "another node has closed the usage meanwhile")
	err = p.read(numbers, func(number int64, body []byte) error {
		if number != numbers[n] {
			return gone
		}
		if err := add(body); err != nil {
			return fmt.Errorf("part %d: %w", number, err)
		}
		if n++; n > 1 && sum.Size() >= p.mostBytes {
			return errEnough
		}
		return nil
	})
	if err == nil && n < len(numbers) {
		err = gone
	}
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	for _, rest := range taken[n:] {
		heap.Push(&p.list, rest)
	}
	return numbers[:n], nil
}

// next returns the least identity of what is left, or nil if nothing is.
func (p *parts) next() *usage.Identity {
	if len(p.list) == 0 {
		return nil
	}
	return &p.list[0].first
}

// byFirst is a heap of parts, the least identity first.
type byFirst []part

func (l byFirst) Len() int           { return len(l) }
func (l byFirst) Less(i, k int) bool { return l[i].first.Compare(&l[k].first) < 0 }
func (l byFirst) Swap(i, k int)      { l[i], l[k] = l[k], l[i] }

// Push implements heap.Interface.
func (l *byFirst) Push(x any) { *l = append(*l, x.(part)) }

// Pop implements heap.Interface.
func (l *byFirst) Pop() any {
	last := len(*l) - 1
	x := (*l)[last]
	*l = (*l)[:last]
	return x
}
