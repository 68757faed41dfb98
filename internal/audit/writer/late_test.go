package writer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
)

// slowStore is a store that takes its time for each transaction, on virtual time, and notes how
// old the oldest record of each write is when it is stored.
type slowStore struct {
	Store
	takes time.Duration // for a transaction
	fails bool

	mu     sync.Mutex
	starts []time.Time // of the writes
	stored int         // number of records
	oldest time.Duration
}

func (s *slowStore) AppendAuditChunks(_ context.Context, _ accesslog.BatchID, chunks []audit.Chunk, _ []*audit.Record) error {
	start := time.Now()
	<-time.After(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts = append(s.starts, start)
	if s.fails {
		return errors.New("the disk is full")
	}
	for i := range chunks {
		s.stored += chunks[i].Records
		s.oldest = max(s.oldest, time.Since(chunks[i].First))
	}
	return nil
}

// AuditOpen returns enough chunks for a block, so that each write that may seal does so.
func (s *slowStore) AuditOpen(_ context.Context, accountID string) (*audit.Open, error) {
	var t audit.Table
	for range audit.RunRecords {
		t.AddEvent(&audit.Event{Time: time.Now().UnixMicro(), Path: "/"})
	}
	chunks, err := t.Chunks(accountID)
	return &audit.Open{Chunks: chunks}, err
}

func (s *slowStore) SealAudit(context.Context, *audit.Seal) error {
	<-time.After(s.takes)
	return nil
}

func (s *slowStore) JoinAuditChunks(context.Context, []int64, audit.Chunk) error {
	<-time.After(s.takes)
	return nil
}

// feed starts a Writer to s, gives it a record every 7 ms for two seconds, in batches of the given
// size, and stops it. It returns the number of records.
func feed(t *testing.T, s *slowStore, batch int) (records int) {
	t.Helper()
	w, err := New(Config{Store: s, Keeper: emptyKeeper{}, OperatorID: id.New(id.Account)})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	accountID := id.NewFast()
	entries := make([]accesslog.Entry, batch)
	for range 2 * time.Second / (7 * time.Millisecond) {
		<-time.After(7 * time.Millisecond)
		for i := range entries {
			e := &entries[i]
			e.Path, e.Account, e.Start, e.Authenticated = "/", accountID, time.Now().UnixMicro(), true
		}
		w.Take(entries)
		records += batch
	}
	if s.fails {
		s.mu.Lock()
		s.fails = false
		s.mu.Unlock()
	}
	if err := w.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	return records
}

// Guarantee: a record is stored within 230 ms of its arrival, which leaves 20 ms for the way to the
// writer, while the store takes up to 115 ms for a write; the duration of a write does not delay
// the next.
func TestRecordsReachTheStoreInTime(t *testing.T) {
	for _, test := range []struct {
		name         string
		takes, bound time.Duration
		batch        int
	}{
		{"at once", 0, DefaultPeriod, 1},
		{"50 ms", 50 * time.Millisecond, 150 * time.Millisecond, 1},
		{"100 ms", 100 * time.Millisecond, 200 * time.Millisecond, 1},
		{"115 ms", 115 * time.Millisecond, 230 * time.Millisecond, 1},
		{"full blocks, 50 ms", 50 * time.Millisecond, 200 * time.Millisecond, audit.RunRecords / 32},
		{"full blocks, 76 ms", 76 * time.Millisecond, 230 * time.Millisecond, audit.RunRecords / 32},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slowStore{takes: test.takes}
				records := feed(t, s, test.batch)
				if s.stored != records {
					t.Errorf("%d of %d records were stored", s.stored, records)
				}
				if s.oldest > test.bound {
					t.Errorf("a record was stored %s after its arrival, want at most %s", s.oldest, test.bound)
				}
			})
		})
	}
}

// Guarantee: a store that fails is tried once in a period, however long it takes to fail.
func TestFailingStoreIsTriedOncePerPeriod(t *testing.T) {
	for _, takes := range []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slowStore{takes: takes, fails: true}
				records := feed(t, s, 1)
				for i := 1; i < len(s.starts)-2; i++ { // the last two writes are Stop's: what failed, and what came since
					if pause := s.starts[i].Sub(s.starts[i-1]) - takes; pause < DefaultPeriod {
						t.Errorf("write %d began %s after the failure of the one before, want at least %s", i, pause, DefaultPeriod)
					}
				}
				if s.stored != records {
					t.Errorf("%d of %d records were stored once the store worked again", s.stored, records)
				}
			})
		})
	}
}
