// Package store defines what an engine of the store offers. There are two: package sqlite keeps
// everything in one file, package postgres in a PostgreSQL database that several nodes share.
// Package storetest is the suite that both pass.
package store

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/acme/serve"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/canary/count"
	"github.com/keygate/keygate/internal/canary/lead"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event/detect"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/retention"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/state"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/usage"
	"github.com/keygate/keygate/internal/validation"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/fanout"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// Engine is everything that the server needs from a store. It is safe for concurrent use.
type Engine interface {
	control.Store
	snapshot.Source
	ratelimit.DailyStore
	ratelimit.QuotaStore
	sender.Queue
	sender.Exclusive
	detect.Store
	auditwriter.Store
	auditwriter.Keeper
	traffic.Store
	usage.Store
	count.Store
	lead.Store
	serve.Source
	requestlog.Store
	validation.Store
	retention.Store
	fanout.Store
	fanout.Counter
	DeliveryBacklog(ctx context.Context, now time.Time) (webhook.Backlog, error)

	// Trouble returns why the store accepts no writes (state.DiskFull or state.Unavailable), or
	// "" if it accepts them.
	Trouble() string
	// Probe uses a store that is in trouble, so that the trouble is found to have ended even if
	// nothing else uses the store.
	Probe(ctx context.Context)
	// Stats returns the current counters and gauges.
	Stats() state.Stats
	// Close waits for running transactions and closes the store. Later calls of the store
	// return fault.Unavailable. Close must be called once.
	Close() error
}
