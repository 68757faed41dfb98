// Package store defines what an engine of the store offers. There are two: package sqlite keeps
// everything in one file, package postgres in a PostgreSQL database that several nodes share.
// Package storetest is the suite that both pass.
package store

import (
	"context"
	"time"

	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event/detect"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/retention"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// Engine is everything that the server needs of a store. It is safe for concurrent use.
type Engine interface {
	control.Store
	snapshot.Source
	ratelimit.DailyStore
	sender.Queue
	sender.Exclusive
	detect.Store
	auditwriter.Store
	auditwriter.Keeper
	traffic.Store
	requestlog.Store
	retention.Store
	DeliveryBacklog(ctx context.Context, now time.Time) (webhook.Backlog, error)

	// Trouble returns why the store accepts no writes (DiskFull or Unavailable), or "" if it
	// accepts them.
	Trouble() string
	// Probe uses a store that is in trouble, so that Trouble ends also where nothing else
	// uses it.
	Probe(ctx context.Context)
	// Stats returns the current counters and gauges.
	Stats() Stats
	// Close waits for running transactions and closes the store. Later calls of the store
	// return fault.Unavailable. Close must be called once.
	Close() error
}

// The reasons of Engine.Trouble.
const (
	DiskFull    = "disk_full"
	Unavailable = "store_unavailable" // the disk fails, the file cannot be written to, or the database cannot be reached
)

// Use is how the connections of one kind were used since the store was opened.
type Use struct {
	Transactions int64
	Waited       time.Duration // total time of waiting for a free connection
	Held         time.Duration // total time in which a connection was in use
}

// Stats are the counters and gauges of a store.
type Stats struct {
	Writes Use
	Reads  Use // of the management API, without searches
	Search Use // searches and reports of the management API, which have their own connections
	Follow Use // of the data plane, which has its own connections
	// Failures counts the write transactions that failed in the database, for example
	// because the disk was full. Changes that a constraint rejects do not count.
	Failures int64
	// Database and Log are the sizes of SQLite's file and of its write-ahead log in bytes, or
	// 0 if there is none.
	Database, Log int64
}
