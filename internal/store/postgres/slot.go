package postgres

import (
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/rows"
)

var _ ratelimit.SlotStore = (*DB)(nil)

const (
	// slotLocks is how many advisory locks the names of slots share, so that those of all nodes together fit into the
	// server's table of locks, whatever they claim. slotLockClass tells them from others.
	slotLocks     = 1024
	slotLockClass = 0x6b676174
	// slotsTrimmed is how many rows TrimSlots removes, about.
	slotsTrimmed = 100
)

const (
	// lockSlots locks names until the end of the transaction. All transactions lock in the order of the numbers.
	lockSlots = `SELECT pg_advisory_xact_lock($1::integer, n::integer) FROM unnest($2::bigint[]) AS n`
	// readSlots is a statement of its own, so that it sees what was committed before the names were locked.
	readSlots = `SELECT s.name, s.process, s.part, s.held, s.asked, s.since, s.seen, s.process = ANY (ARRAY(SELECT process FROM slot_processes_live)),
			(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
		FROM (SELECT 1) one LEFT JOIN slots s ON s.name = ANY ($1)`
)

// slotRow is a row of the table slots.
type slotRow struct {
	name, process string
	part          int64
	asked         bool
	share         ratelimit.SlotShare
	counts        bool // its process lives, or has not ended long enough ago
}

// ClaimSlots implements ratelimit.SlotStore. The clock is the database's. A process that is suspended in it keeps the locks
// for half a second.
func (db *DB) ClaimSlots(ctx context.Context, process string, claims []ratelimit.SlotClaim) error {
	if len(claims) == 0 {
		return ctx.Err()
	}
	return db.reserveAs(ctx, noHeadSoon, func(ctx context.Context, t *tx) error { return t.claimSlots(ctx, process, claims) })
}

// claimSlots takes one round trip, and one more with COMMIT.
func (t *tx) claimSlots(ctx context.Context, process string, claims []ratelimit.SlotClaim) error {
	names := make([]string, len(claims))
	for i := range claims {
		names[i] = claims[i].Name
	}
	stored, now, err := t.lockedSlots(ctx, names)
	if err != nil {
		return err
	}
	var w slotWrites
	for _, list := range stored {
		for _, r := range list {
			if !r.counts && r.process != process {
				w.removed.add(r)
			}
		}
	}
	for i := range claims {
		w.claim(process, stored, &claims[i], now)
	}
	return w.write(ctx, t)
}

// lockedSlots locks names, and reads the rows that they have by name, and the clock.
func (t *tx) lockedSlots(ctx context.Context, names []string) (stored map[string][]*slotRow, now int64, err error) {
	if err := t.Queue(ctx, "lock slots", lockSlots, slotLockClass, locksOf(names)); err != nil {
		return nil, 0, err
	}
	stored = map[string][]*slotRow{}
	err = t.Query(ctx, "read slots", readSlots, []any{names}, func(row *rows.Row) error {
		var name, process *string
		var part, held, since, seen *int64
		var asked, counts *bool
		if err := row.Scan(&name, &process, &part, &held, &asked, &since, &seen, &counts, &now); err != nil || name == nil {
			return err
		}
		stored[*name] = append(stored[*name], &slotRow{*name, *process, *part, *asked, ratelimit.SlotShare{Held: *held, FullSince: slotTime(*since), Seen: slotTime(*seen)}, *counts})
		return nil
	})
	return stored, now, err
}

// slotTime returns a stored time; 0 stands for none.
func slotTime(micros int64) (at time.Time) {
	if micros != 0 {
		at = time.UnixMicro(micros)
	}
	return at
}

// storedSlotTime returns the form that slotTime reads.
func storedSlotTime(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}

// locksOf returns the locks of names, in order and each once.
func locksOf(names []string) []int64 {
	locks := make([]int64, len(names))
	for i, name := range names {
		h := fnv.New32a()
		_, _ = h.Write([]byte(name)) // never fails
		locks[i] = int64(h.Sum32() % slotLocks)
	}
	slices.Sort(locks)
	return slices.Compact(locks)
}

// slotKeys are primary keys of the table slots, as columns.
type slotKeys struct {
	names, processes []string
	parts            []int64
}

func (k *slotKeys) add(r *slotRow) {
	k.names, k.processes, k.parts = append(k.names, r.name), append(k.processes, r.process), append(k.parts, r.part)
}

// slotWrites is what claims change.
type slotWrites struct {
	removed, asked slotKeys
	put            slotKeys
	held           []int64
	since, seen    []int64
}

// claim sets the answer to a claim, and notes what it changes, in stored too.
func (w *slotWrites) claim(process string, stored map[string][]*slotRow, c *ratelimit.SlotClaim, now int64) {
	var own *slotRow
	var others []*slotRow
	var shares []ratelimit.SlotShare
	for _, r := range stored[c.Name] {
		switch {
		case r.process == process && r.part == c.Part:
			own = r
		case r.counts || r.process == process:
			others, shares = append(others, r), append(shares, r.share)
		}
	}
	c.Grant(shares, time.UnixMicro(now))
	share := c.Share()
	switch {
	case c.Granted > 0 && own == nil:
		own = &slotRow{name: c.Name, process: process, part: c.Part, counts: true}
		stored[c.Name] = append(stored[c.Name], own)
		fallthrough
	case c.Granted > 0 && (own.share.Held != c.Granted || own.asked || own.share.FullSince.IsZero() != share.FullSince.IsZero()):
		own.share, own.asked = share, false
		w.put.add(own)
		w.held, w.since, w.seen = append(w.held, share.Held), append(w.since, storedSlotTime(share.FullSince)), append(w.seen, storedSlotTime(share.Seen))
	case c.Granted == 0 && own != nil:
		own.share.Held = 0 // for other parts of the process
		w.removed.add(own)
	}
	for _, r := range others {
		if c.Lacks() && !r.asked && r.share.Held > 0 {
			r.asked = true
			w.asked.add(r)
		}
	}
}

// keySet is the rows of slotKeys, which are $1, $2 and $3.
const keySet = `unnest($1::text[], $2::text[], $3::bigint[]) AS c (name, process, part)`

// write queues the statements. What is asked is written last, because a part may be asked in the call that puts it.
func (w *slotWrites) write(ctx context.Context, t *tx) error {
	if k := &w.removed; len(k.names) > 0 {
		if err := t.Queue(ctx, "remove slots", `DELETE FROM slots s USING `+keySet+` WHERE s.name = c.name AND s.process = c.process AND s.part = c.part`,
			k.names, k.processes, k.parts); err != nil {
			return err
		}
	}
	if k := &w.put; len(k.names) > 0 {
		if err := t.Queue(ctx, "put slots", `INSERT INTO slots (name, process, part, held, asked, since, seen)
			SELECT c.name, c.process, c.part, c.held, false, c.since, c.seen
			FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) AS c (name, process, part, held, since, seen)
			ON CONFLICT (name, process, part) DO UPDATE SET held = excluded.held, asked = false, since = excluded.since, seen = excluded.seen`,
			k.names, k.processes, k.parts, w.held, w.since, w.seen); err != nil {
			return err
		}
	}
	if k := &w.asked; len(k.names) > 0 {
		return t.Queue(ctx, "ask for slots", `UPDATE slots s SET asked = true FROM `+keySet+` WHERE s.name = c.name AND s.process = c.process AND s.part = c.part`,
			k.names, k.processes, k.parts)
	}
	return nil
}

// AskedSlots implements ratelimit.SlotStore.
func (db *DB) AskedSlots(ctx context.Context, process string, limit int) (parts []int64, at time.Time, err error) {
	err = db.statement(ctx, db.source, reserveTime, func(t *readTx) error {
		parts = nil // it may be an attempt more
		return t.Query(ctx, "read which slots are asked for", `SELECT coalesce(s.part, 0), now.at FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at) now
			LEFT JOIN (SELECT part FROM slots WHERE process = $1 AND asked ORDER BY part LIMIT $2) s ON true`, []any{process, limit}, func(row *rows.Row) error {
			var part, micros int64
			err := row.Scan(&part, &micros)
			if at = time.UnixMicro(micros); part != 0 {
				parts = append(parts, part)
			}
			return err
		})
	})
	return parts, at, err
}

// TrimSlots implements ratelimit.SlotStore. Claims to the names come before it or after, as they do with each other.
func (db *DB) TrimSlots(ctx context.Context) error {
	return db.reserveAs(ctx, noHeadSoon, func(ctx context.Context, t *tx) error {
		var names []string
		err := t.Query(ctx, "find slots of processes that have ended", `SELECT DISTINCT name FROM (SELECT name FROM slots
				WHERE process <> ALL (ARRAY(SELECT process FROM slot_processes_live)) LIMIT `+strconv.Itoa(slotsTrimmed)+`) s`, nil, func(row *rows.Row) error {
			var name string
			err := row.Scan(&name)
			names = append(names, name)
			return err
		})
		if err != nil || len(names) == 0 {
			return err
		}
		return t.claimSlots(ctx, "", namesOnly(names))
	})
}

// namesOnly returns claims to nothing.
func namesOnly(names []string) []ratelimit.SlotClaim {
	claims := make([]ratelimit.SlotClaim, len(names))
	for i, name := range names {
		claims[i].Name = name
	}
	return claims
}
