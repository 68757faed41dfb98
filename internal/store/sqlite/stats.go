package sqlite

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/store/state"
)

// use counts how the connections of a pool are used.
type use struct{ times, waited, held atomic.Int64 }

func (u *use) read() state.Use {
	return state.Use{Transactions: u.times.Load(), Waited: time.Duration(u.waited.Load()), Held: time.Duration(u.held.Load())}
}

// Stats implements store.Engine.
func (db *DB) Stats() state.Stats {
	return state.Stats{
		Writes: db.writer.use.read(), Reads: db.readers.use.read(), Search: db.searchers.use.read(), Follow: db.source.use.read(), Failures: db.Failures(),
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
