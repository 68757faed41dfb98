package sqlite

import (
	"os"
	"sync/atomic"
	"time"
)

// use counts how the connections of a pool are used.
type use struct{ times, waited, held atomic.Int64 }

// Use is how the connections of one kind were used since the store was opened.
type Use struct {
	Transactions int64
	Waited       time.Duration // total time of waiting for a free connection
	Held         time.Duration // total time in which a connection was in use
}

func (u *use) read() Use {
	return Use{Transactions: u.times.Load(), Waited: time.Duration(u.waited.Load()), Held: time.Duration(u.held.Load())}
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
	// Database and Log are the sizes of the file and of its write-ahead log in bytes, or 0
	// if there is none.
	Database, Log int64
}

// Stats returns the current counters and gauges.
func (db *DB) Stats() Stats {
	return Stats{
		Writes: db.writer.use.read(), Reads: db.readers.use.read(), Search: db.searchers.use.read(), Follow: db.source.use.read(), Failures: db.failures.Load(),
		Database: size(db.path), Log: size(db.path + "-wal"),
	}
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0 // there may be no write-ahead log
	}
	return info.Size()
}
