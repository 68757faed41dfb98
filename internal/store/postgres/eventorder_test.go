package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/rows"
)

// eventAt returns an event for the endpoint, by a clock that is wrong by skew.
func (c *nodes) eventAt(skew time.Duration) event.Event {
	c.Helper()
	e, err := event.New(c.account, event.KeyCreated, time.Now().Add(skew), event.Key{KeyID: id.New(id.Key)})
	c.must(err)
	return e
}

// eventFollower reads the list of events as a client does: page by page from the newest event back to the event
// that was the newest the last time.
type eventFollower struct {
	*nodes
	newest string
	seen   []string // in the order of the list, oldest first
}

// follow reads what is new.
func (f *eventFollower) follow(db *DB) error {
	const limit = 7
	var found []string
	for after, more := "", true; more; {
		var page []event.Event
		err := db.View(f.Context(), func(tx control.ReadTx) (err error) {
			page, err = tx.Events(f.Context(), f.account, control.EventFilter{}, control.Page{Limit: limit, After: after})
			return err
		})
		if err != nil {
			return err
		}
		more = len(page) == limit
		for i := range page {
			if after = page[i].ID; after == f.newest {
				more = false
				break
			}
			found = append(found, after)
		}
	}
	if len(found) > 0 {
		f.newest = found[0]
		slices.Reverse(found)
		f.seen = append(f.seen, found...)
	}
	return nil
}

// errUndo ends a transaction that is to change nothing.
var errUndo = errors.New("undo")

// Guarantee: a client that reads the list of events from the newest back to the newest that it knows sees each event
// once, whichever node writes them: with wrong clocks, in transactions that are slow or rolled back, and on nodes of
// an older version, which does not know of the order.
func TestFollowerOfEventsMissesNone(t *testing.T) {
	const rounds = 25
	c := newNodes(t, 3)
	var (
		mu        sync.Mutex
		committed []string
		writers   sync.WaitGroup
	)
	slowly := func(tx *tx, events ...event.Event) error {
		for i := range events {
			if err := tx.AppendEvent(context.Background(), &events[i]); err != nil {
				return err
			}
		}
		_, err := tx.Exec(context.Background(), "be slow", `SELECT pg_sleep(random() * 0.004)`)
		return err
	}
	for i, db := range c.stores {
		skew := time.Duration(i-1) * time.Hour
		for kind, write := range []func(events []event.Event) error{
			func(events []event.Event) error { return db.AppendEvents(c.Context(), events) },
			func(events []event.Event) error {
				return db.mutate(c.Context(), func(tx *tx) error { return slowly(tx, events...) })
			},
			func(events []event.Event) error {
				err := db.write(c.Context(), func(tx *tx) error { return errors.Join(slowly(tx, c.eventAt(skew)), errUndo) })
				if !errors.Is(err, errUndo) {
					return err
				}
				return db.write(c.Context(), func(tx *tx) error { return slowly(tx, events...) })
			},
			func(events []event.Event) error { // of an older version
				return db.write(c.Context(), func(tx *tx) error {
					for _, e := range events {
						_, err := tx.Exec(c.Context(), "append", `INSERT INTO events (id, account_id, type, created_at, payload, listed) VALUES ($1, $2, $3, $4, $5, true)`,
							e.ID, e.AccountID, string(e.Type), rows.Micros(e.CreatedAt), e.Payload)
						if err != nil {
							return err
						}
					}
					return slowly(tx)
				})
			},
		} {
			random := rand.New(rand.NewPCG(uint64(i), uint64(kind)))
			writers.Go(func() {
				for range rounds {
					var events []event.Event
					for range 1 + random.IntN(4) {
						events = append(events, c.eventAt(skew+time.Duration(random.IntN(2000))*time.Millisecond))
					}
					if err := write(events); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, e := range events {
						committed = append(committed, e.ID)
					}
					mu.Unlock()
				}
			})
		}
	}
	over := make(chan struct{})
	go func() {
		writers.Wait()
		close(over)
	}()
	f := eventFollower{nodes: c}
	for i, last := 0, false; !last; i++ {
		select {
		case <-over:
			last = true
		default:
		}
		c.must(f.follow(c.stores[i%len(c.stores)]))
	}
	if inOrder := slices.IsSorted(f.seen); inOrder {
		t.Error("the identifiers are in the order of the commits: this test shows nothing")
	}
	slices.Sort(f.seen)
	slices.Sort(committed)
	if !slices.Equal(f.seen, committed) {
		t.Errorf("saw %d events of %d, or some twice", len(f.seen), len(committed))
	}
}

// Guarantee: every list of events reads an index in the order of the list.
func TestEventListPlans(t *testing.T) {
	db := fresh(t)
	for _, statement := range []string{
		`INSERT INTO accounts (id, name, plan, created_at) VALUES ('acct_1', 'a', 'scale', 0), ('acct_2', 'b', 'scale', 0)`,
		`INSERT INTO events (id, account_id, type, created_at, payload, listed, n)
			SELECT 'evt_' || lpad(i::text, 8, '0'), 'acct_' || 1 + i % 2, 'type' || i % 3, i, '{}', true, i FROM generate_series(1, 6000) AS i`,
		`ANALYZE`,
	} {
		if _, err := db.writer.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []control.EventFilter{{}, {Type: "type1"}, {Since: time.Unix(1, 0)}, {Type: "type1", Until: time.Now()}} {
		for _, known := range []bool{true, false} {
			text, args := eventQuery("acct_1", f, control.Page{Limit: 25, After: "evt_00003000"}, 3000, known)
			if plan := explain(t, db, text, args, true); regexp.MustCompile(`Seq Scan|Sort`).MatchString(plan) {
				t.Errorf("a list scans the table, or sorts it:\n%s\n%s", text, plan)
			}
		}
	}
}
