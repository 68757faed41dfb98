// Package state describes the state of a store: its counters, and why it accepts no writes.
package state

import "time"

// The reasons why a store accepts no writes.
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

// Counted is what a store reports to tests about a committed write transaction.
type Counted struct {
	Rows int64         // that it has inserted, changed and deleted, also by triggers
	Took time.Duration // from its begin to its end
	// HeadTrips is how many round trips to PostgreSQL began or passed while it held the head of the change log, COMMIT
	// included. 0 for a transaction that does not take it, and with SQLite.
	HeadTrips int
}
