package audit

import (
	"container/heap"
	"math"
)

// maxMerged is the number of blocks that a merge holds at the same time. More blocks overlap in time only if clocks
// are far apart; the order is then not exact.
const maxMerged = 64

// A merge orders the records of blocks by time. Blocks overlap: requests are recorded when they end, and by several
// nodes. Blocks come in the order of their first records, so records that are older than the first record of the
// next block can be encoded.
type merge struct {
	runs    runs
	horizon int64 // no later block has a record before this time
}

// run is the records of a block, or of the open end, that are not encoded yet. Its times ascend.
type run struct {
	order   int64 // of records of the same time
	view    *View
	indexes []int
	texts   *lineTexts
	record  *Record // in place of view: a gap
}

func (r *run) time() int64 {
	if r.record != nil {
		return r.record.Time.UnixMicro()
	}
	return r.view.times[r.indexes[0]]
}

// before reports whether the next record of r comes before the next one of o.
func (r *run) before(o *run) bool {
	if a, b := r.time(), o.time(); a != b {
		return a < b
	}
	return r.order < o.order
}

// runs is a heap.Interface of runs that have records, the one with the oldest first.
type runs []*run

func (h runs) Len() int           { return len(h) }
func (h runs) Less(i, j int) bool { return h[i].before(h[j]) }
func (h runs) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *runs) Push(x any) { *h = append(*h, x.(*run)) }

// Pop implements heap.Interface.
func (h *runs) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}

// add adds a run.
func (m *merge) add(r *run) {
	if r.record != nil || len(r.indexes) > 0 {
		heap.Push(&m.runs, r)
	}
}

// encode encodes the records before the horizon, and more if too many blocks are held.
func (m *merge) encode(to *LineEncoder, emit func(lines []byte) error) error {
	for len(m.runs) > 0 && (m.runs[0].time() < m.horizon || len(m.runs) > maxMerged) {
		r := m.runs[0]
		if r.record != nil {
			heap.Pop(&m.runs)
			if err := to.record(r.record, emit); err != nil {
				return err
			}
			continue
		}
		n := m.ahead(r)
		if err := to.run(r, n, emit); err != nil {
			return err
		}
		if r.indexes = r.indexes[n:]; len(r.indexes) == 0 {
			heap.Pop(&m.runs)
		} else {
			heap.Fix(&m.runs, 0)
		}
	}
	return nil
}

// ahead returns how many records of r, which is the first run, come before the records of all other runs and
// before the horizon; at least one.
func (m *merge) ahead(r *run) int {
	until, order := m.horizon, int64(math.MinInt64)
	for _, child := range []int{1, 2} { // the next of a heap is one of these
		if child >= len(m.runs) {
			break
		}
		if o := m.runs[child]; o.time() < until || o.time() == until && o.order < order {
			until, order = o.time(), o.order
		}
	}
	n := 1
	for n < len(r.indexes) {
		if at := r.view.times[r.indexes[n]]; at > until || at == until && r.order > order {
			break
		}
		n++
	}
	return n
}
