package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/store/postgres"
)

// snapshotPeriod is the time between two looks for the oldest snapshot of the database.
const snapshotPeriod = 30 * time.Second

// snapshotAge keeps the age of the database's oldest snapshot for the metrics.
type snapshotAge struct {
	db    *postgres.DB
	age   atomic.Int64 // nanoseconds; the last one that could be read
	group service.Group
}

// Start begins to look, until Stop.
func (a *snapshotAge) Start(context.Context) error {
	return a.group.Start(func(ctx context.Context) {
		service.Every(ctx, snapshotPeriod, func(ctx context.Context) {
			if age, err := a.db.OldestSnapshot(ctx); err == nil {
				a.age.Store(int64(age))
			}
		})
	})
}

// Stop ends it.
func (a *snapshotAge) Stop(ctx context.Context) error { return a.group.Stop(ctx) }

func (a *snapshotAge) seconds() float64 { return time.Duration(a.age.Load()).Seconds() }
