package sqlite

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/service"
)

const (
	// While there are commits, the checkpointer runs at least every checkpointEvery, and
	// earlier when the write-ahead log has about checkpointPages pages.
	checkpointEvery = 2 * time.Second
	checkpointPages = 500
	// backstopPages is the length of the log at which the writer itself checkpoints,
	// within a COMMIT: after a large change, and while the checkpointer cannot keep up.
	backstopPages = 3000
	// warnEvery is the minimum time between two warnings about a failed checkpoint.
	warnEvery = time.Minute
)

// checkpointer writes the write-ahead log back into the database file on its own connection, so
// that no COMMIT waits for the two syncs of the disk and the write for each page that this takes.
type checkpointer struct {
	db      *DB
	from    *sql.DB
	commits atomic.Int64 // since it last ran
	due     atomic.Int64 // number of commits after which it runs at once
	wake    chan struct{}
	group   service.Group

	pages  int64     // length of the log when it last ran; used only by the goroutine
	failed time.Time // when the last warning was logged; used only by the goroutine
}

func newCheckpointer(db *DB, from *sql.DB) *checkpointer {
	c := &checkpointer{db: db, from: from, wake: make(chan struct{}, 1)}
	c.due.Store(1)
	c.group.Go(c.run)
	return c
}

// committed is called after each commit. It never blocks.
func (c *checkpointer) committed() {
	if n := c.commits.Add(1); n == 1 || n >= c.due.Load() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// close stops the goroutine after a checkpoint that is running.
func (c *checkpointer) close() {
	_ = c.group.Stop(context.Background()) // without a bound there is no error
}

func (c *checkpointer) run(ctx context.Context) {
	var late <-chan time.Time // nil while there are no new commits
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

// checkpoint writes back as much as it can without blocking others. commits is the number of
// commits since the last checkpoint; from it, checkpoint estimates after how many commits the log
// has checkpointPages pages again.
func (c *checkpointer) checkpoint(commits int64) {
	var busy, pages, written int64
	err := c.from.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &pages, &written)
	if err != nil {
		// The writer tries it too, and fails if it is not possible.
		if now := time.Now(); now.Sub(c.failed) > warnEvery {
			c.failed = now
			c.db.log.Warn("cannot write back the write-ahead log in the background", "error", err)
		}
		return
	}
	if busy != 0 { // the writer or another process is at it; pages is not set
		return
	}
	fresh := pages - c.pages
	if fresh < 0 { // the log was restarted
		fresh = pages
	}
	c.pages = pages
	c.due.Store(max(1, checkpointPages*commits/max(1, fresh)))
}
