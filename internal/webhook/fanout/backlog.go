package fanout

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// The bounds of the events that are to be fanned out, each with up to 1,000 deliveries.
const (
	// MaxWaiting is the number of waiting events of an account at which calls that raise another event are refused.
	MaxWaiting = 1000
	// maxAll is the number of waiting events of all accounts at which an account that has any may not have more.
	maxAll = 20_000
	// forTraffic multiplies these numbers for events of requests. Calls, which can be repeated, are
	// so refused before requests stop raising events.
	forTraffic = 10

	// countEvery is the least time between two counts, and countLife how long one holds. Events may exceed a
	// bound by what is raised within countEvery.
	countEvery = time.Second
	countLife  = 3 * time.Second
)

// Counter counts the events that are to be fanned out, by account.
type Counter interface {
	FanOutBacklog(ctx context.Context) (map[string]int, error)
}

// Backlog bounds the events that are to be fanned out, of each account and in all. It counts them only while
// somebody asks, that is, while events are raised. As long as the store cannot be read, nothing counts as full.
// It is safe for concurrent use.
type Backlog struct {
	store Counter
	asked service.Signal // holds a token if a count is wanted
	last  atomic.Pointer[count]
	group service.Group
}

type count struct {
	at  time.Time
	all int
	of  map[string]int
}

// NewBacklog returns a Backlog that is not started. The only error is a missing store.
func NewBacklog(store Counter) (*Backlog, error) {
	if store == nil {
		return nil, errors.New("webhook/fanout: a Backlog needs a store")
	}
	return &Backlog{store: store, asked: service.NewSignal()}, nil
}

// Start begins to count.
func (b *Backlog) Start(context.Context) error {
	if err := b.group.Start(b.run); err != nil {
		return fmt.Errorf("start counting events: %w", err)
	}
	return nil
}

// Stop ends what Start began. Then nothing is full.
func (b *Backlog) Stop(ctx context.Context) error {
	if err := b.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop counting events: %w", err)
	}
	return nil
}

// FullForCalls reports whether too many events of the account are to be fanned out, so that its calls must
// raise no more.
func (b *Backlog) FullForCalls(accountID string) bool { return b.full(accountID, 1) }

// FullForTraffic is FullForCalls for the events of requests.
func (b *Backlog) FullForTraffic(accountID string) bool { return b.full(accountID, forTraffic) }

func (b *Backlog) full(accountID string, times int) bool {
	b.asked.Notify()
	c := b.last.Load()
	if c == nil || time.Since(c.at) > countLife {
		return false
	}
	return c.of[accountID] >= max(1, min(MaxWaiting*times, maxAll*times-c.all))
}

func (b *Backlog) run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-b.asked:
		}
		if of, err := b.store.FanOutBacklog(ctx); err == nil {
			c := &count{at: time.Now(), of: of}
			for _, n := range of {
				c.all += n
			}
			b.last.Store(c)
		}
		pause.Reset(countEvery)
	}
}
