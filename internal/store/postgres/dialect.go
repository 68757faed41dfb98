package postgres

import (
	"sync"

	"github.com/keygate/keygate/internal/store/rows"
)

// dialect keeps the statements that were rewritten as package rows says. It is safe for concurrent use. Statements are
// constants or built from a few parts, so there are few.
type dialect struct {
	mu    sync.RWMutex
	known map[string]rewritten
}

// rewritten is a statement in the forms that the server gets.
type rewritten struct {
	alone string
	one   string // it fails by a division by zero if it changes no row
}

// of returns a statement as it was rewritten when it was used for the first time.
func (d *dialect) of(statement string) rewritten {
	d.mu.RLock()
	r, found := d.known[statement]
	d.mu.RUnlock()
	if found {
		return r
	}
	r.alone = rows.ForPostgreSQL(statement)
	r.one = `WITH changed AS (` + r.alone + ` RETURNING 1) SELECT 1 / count(*) FROM changed`
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = map[string]rewritten{}
	}
	d.known[statement] = r
	return r
}
