package sqlite

import (
	"os"
	"sync/atomic"
	"time"
)

// use is what a pool's connections were used for.
type use struct{ times, waited, held atomic.Int64 }

// Use is how connections of one kind were used since the beginning.
type Use struct {
	Transactions int64
	Waited       time.Duration // for a free connection, together
	Held         time.Duration // from getting one to giving it back, together
}

func (u *use) read() Use {
	return Use{Transactions: u.times.Load(), Waited: time.Duration(u.waited.Load()), Held: time.Duration(u.held.Load())}
}

// Stats are the figures of a store.
type Stats struct {
	Writes Use
	Reads  Use // of the management API
	Follow Use // of the data plane, which reads for itself
	// Failures are the writing transactions that the store failed, as with a full
	// disk. That a rule forbade a change is none.
	Failures int64
	// Database and Log are the sizes of the file and of its write-ahead log, in
	// bytes; 0 if there is none.
	Database, Log int64
}

// Stats returns the figures.
func (db *DB) Stats() Stats {
	return Stats{
		Writes: db.writer.use.read(), Reads: db.readers.use.read(), Follow: db.source.use.read(), Failures: db.failures.Load(),
		Database: size(db.path), Log: size(db.path + "-wal"),
	}
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0 // there is no write-ahead log at times
	}
	return info.Size()
}
