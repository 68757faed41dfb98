package validation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// Store keeps the reports of all nodes.
type Store interface {
	// MergeValidation adds reports to those of their gateways, all or none, and removes what is older than Hours at now.
	MergeValidation(ctx context.Context, list []*Report, now time.Time) error
	// Validation returns the report of a gateway; an empty one if there is none.
	Validation(ctx context.Context, gatewayID string) (*Report, error)
}

// flushPeriod is how often what was counted is stored.
const flushPeriod = 5 * time.Second

// flushBatch is how many gateways are stored in one transaction.
const flushBatch = 20

// ReporterConfig configures a Reporter. All fields but Log are required.
type ReporterConfig struct {
	Reports *Reports
	Store   Store
	Now     func() time.Time
	Log     *slog.Logger // nil discards failures
}

// Reporter stores what Reports has counted, and reads the reports of all nodes. It is safe for concurrent use.
type Reporter struct {
	cfg      ReporterConfig
	group    service.Group
	flushing sync.Mutex
}

// NewReporter returns a Reporter. The only error is a missing field of cfg.
func NewReporter(cfg ReporterConfig) (*Reporter, error) {
	if cfg.Reports == nil || cfg.Store == nil || cfg.Now == nil {
		return nil, errors.New("validation: ReporterConfig.Reports, Store and Now are required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reporter{cfg: cfg}, nil
}

// Start begins to store what is counted.
func (r *Reporter) Start(context.Context) error {
	err := r.group.Start(func(ctx context.Context) {
		service.Every(ctx, flushPeriod, func(ctx context.Context) {
			if err := r.Flush(ctx); err != nil && ctx.Err() == nil {
				r.cfg.Log.Warn("could not store what requests do otherwise than their documents say; it is tried again", "error", err)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("start to report on documents: %w", err)
	}
	return nil
}

// Stop stores the rest and ends.
func (r *Reporter) Stop(ctx context.Context) error {
	if err := r.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop reporting on documents: %w", err)
	}
	return r.Flush(ctx)
}

// Flush stores what was counted on this node. What could not be stored is counted again.
func (r *Reporter) Flush(ctx context.Context) error {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	taken := r.cfg.Reports.Take()
	ids := slices.Sorted(maps.Keys(taken))
	for len(ids) > 0 {
		some := ids[:min(len(ids), flushBatch)]
		list := make([]*Report, len(some))
		for i, gatewayID := range some {
			list[i] = taken[gatewayID]
		}
		if err := r.cfg.Store.MergeValidation(ctx, list, r.cfg.Now()); err != nil {
			for _, gatewayID := range ids {
				r.cfg.Reports.giveBack(taken[gatewayID])
			}
			return err
		}
		ids = ids[len(some):]
	}
	return nil
}

// Report returns what the requests of a gateway have done otherwise than its document says, on all nodes: on the others up to some
// seconds ago.
func (r *Reporter) Report(ctx context.Context, gatewayID string) (*Report, error) {
	if err := r.Flush(ctx); err != nil {
		return nil, err
	}
	report, err := r.cfg.Store.Validation(ctx, gatewayID)
	if err != nil {
		return nil, err
	}
	report.Trim(r.cfg.Now())
	return report, nil
}
