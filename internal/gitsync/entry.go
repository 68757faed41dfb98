package gitsync

import (
	"container/heap"
	"context"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/repository"
)

// depth is how much a sync does with a commit that is known.
type depth int

const (
	ifNew depth = iota // push only a new commit
	retry              // also one that could not be pushed
	apply              // also one that was pushed
)

// phase is what an entry does now.
type phase int

const (
	idle    phase = iota // until its time
	queued               // waits for a slot of the first step
	polling              // holds one
	reading              // waits for a slot of the second step, or holds one
)

// entry is a gateway that follows a repository. It is guarded by Syncer.mu.
type entry struct {
	gatewayID, accountID string

	at    time.Time // when the next sync is due, by the monotonic clock; zero: only on request
	index int       // in the heap; -1 if it is not there

	phase    phase
	want     depth           // of the next sync
	depth    depth           // of the running sync
	again    bool            // a sync follows the running one
	cancel   func()          // of the running sync
	waiters  []chan struct{} // for the end of the next sync
	shown    bool            // the result of the running sync is stored, and only the commit's status is still to be set
	failures int             // of syncs in a row
}

// run is one sync.
type run struct {
	*entry
	ctx     context.Context //nolint:containedctx // it lives for one sync
	record  *control.RepositoryToSync
	source  repository.Source
	commit  string // the newest of the branch; "" until it is known
	depth   depth
	waiters []chan struct{}
	attempt time.Time // wall clock
}

// schedule is a heap of entries by the time at which they are due.
type schedule []*entry

var _ heap.Interface = (*schedule)(nil)

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	e := x.(*entry) //nolint:forcetypeassert // only entries are pushed
	e.index = len(*s)
	*s = append(*s, e)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	old := *s
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	e.index = -1
	return e
}
