package sqlite

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/service"
)

const (
	// checkpointEvery is how long what was committed stands in the write-ahead log
	// alone at most, as long as somebody commits; checkpointPages, how many pages of
	// it the checkpointer lets gather.
	checkpointEvery = 2 * time.Second
	checkpointPages = 500
	// backstopPages is the length of the log at which the writer itself writes it
	// back, within a COMMIT: after one large change, and while much is written.
	backstopPages = 3000
	complainEvery = time.Minute
)

// checkpointer writes the write-ahead log back into the file beside the writer,
// on a connection of its own, so that no COMMIT waits for it: that takes two waits
// for the disk and as many writes as there are pages.
type checkpointer struct {
	db      *DB
	from    *sql.DB
	commits atomic.Int64 // since it last ran
	due     atomic.Int64 // how many make it run at once
	wake    chan struct{}
	group   service.Group

	pages  int64 // of the log, when it last ran; of the goroutine alone, like failed
	failed time.Time
}

func newCheckpointer(db *DB, from *sql.DB) *checkpointer {
	c := &checkpointer{db: db, from: from, wake: make(chan struct{}, 1)}
	c.due.Store(1)
	c.group.Go(c.run)
	return c
}

// committed tells that a transaction was. It never blocks.
func (c *checkpointer) committed() {
	if n := c.commits.Add(1); n == 1 || n >= c.due.Load() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// close ends the goroutine, after the checkpoint that runs.
func (c *checkpointer) close() {
	_ = c.group.Stop(context.Background()) // without a bound there is no error
}

func (c *checkpointer) run(ctx context.Context) {
	var late <-chan time.Time // nil while nothing was committed
	for {
		now := false
		select {
		case <-ctx.Done():
			return
		case <-late:
			now = true
		case <-c.wake:
		}
		switch n := c.commits.Load(); {
		case now || n >= c.due.Load():
			late = nil
			if n = c.commits.Swap(0); n > 0 {
				c.checkpoint(n)
			}
		case n > 0 && late == nil:
			late = time.After(checkpointEvery)
		}
	}
}

// checkpoint writes back what it can without keeping anybody waiting, and finds out
// how many commits fill the log, given how many there were since the last time.
func (c *checkpointer) checkpoint(commits int64) {
	var busy, pages, written int64
	err := c.from.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &pages, &written)
	if err != nil {
		// The writer does it then, or tells why nobody can.
		if now := time.Now(); now.Sub(c.failed) > complainEvery {
			c.failed = now
			c.db.log.Warn("the write-ahead log was not written back beside the writer", "error", err)
		}
		return
	}
	if busy != 0 { // the writer or another process is at it; nothing is told of the log
		return
	}
	fresh := pages - c.pages
	if fresh < 0 { // the log began anew
		fresh = pages
	}
	c.pages = pages
	c.due.Store(max(1, checkpointPages*commits/max(1, fresh)))
}
