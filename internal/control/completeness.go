package control

import (
	"context"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// Syncer flushes records from memory to the store.
type Syncer interface {
	// Sync returns when all records that were emitted before the call are in the store.
	Sync(ctx context.Context) error
}

// syncWithin is how long a list waits for records that are still in memory. A store that
// accepts no writes can still be read.
const syncWithin = 2 * time.Second

// Completeness says whether a list or report has everything up to its call. It is passed in the context.
type Completeness struct {
	Missing string // why the newest records are missing; "" if none are
}

type completenessKey struct{}

// WithCompleteness returns a context for an operation, which sets to.
func WithCompleteness(ctx context.Context, to *Completeness) context.Context {
	return context.WithValue(ctx, completenessKey{}, to)
}

// sync flushes the records in memory. It gives up after syncWithin. If the store does not have all of them by then,
// it logs this, and the Completeness of ctx says so.
func (s *Service) sync(ctx context.Context, from Syncer) {
	within, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	err := from.Sync(within)
	if err == nil || ctx.Err() != nil {
		return
	}
	s.cfg.Log.WarnContext(ctx, "latest records not written in time; the response is without them", "error", err)
	if to, ok := ctx.Value(completenessKey{}).(*Completeness); ok {
		to.Missing = missingBecause(err)
	}
}

// missingBecause returns the public text for an error of Syncer.Sync.
func missingBecause(err error) string {
	const kept = "the newest records are missing, and are added as soon as the store takes them"
	var public *fault.Error
	switch {
	case errors.As(err, &public) && public.Code == fault.Unavailable:
		return kept + ": " + public.Message
	case errors.Is(err, context.DeadlineExceeded):
		return kept + ": it has not taken them within 2 seconds"
	default:
		return kept
	}
}
