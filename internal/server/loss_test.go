package server

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
)

// promptStore takes audit records without taking time, and measures how long
// each waited.
type promptStore struct {
	auditwriter.Store
	auditwriter.Keeper

	mu      sync.Mutex
	put     []time.Time // the oldest first, of what is not taken yet
	taken   int
	longest time.Duration
}

func (s *promptStore) AppendAuditChunks(_ context.Context, chunks []audit.Chunk, _ []*audit.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chunks {
		s.longest = max(s.longest, time.Since(s.put[0]))
		s.put, s.taken = s.put[c.Records:], s.taken+c.Records
	}
	return nil
}

func (s *promptStore) AuditWaiting(context.Context) ([]audit.Waiting, error) { return nil, nil }
func (s *promptStore) AuditOpen(context.Context, string) (*audit.Open, error) {
	return &audit.Open{}, nil
}
func (s *promptStore) TrimAudit(context.Context, time.Time, int64) (*audit.Trimmed, error) {
	return nil, nil
}
func (s *promptStore) AuditChains(context.Context) ([]audit.Chain, error) { return nil, nil }

// Guarantee: a record of the data plane is given to the store within half of the
// 250 ms that kill -9 may take (contract, section 7); the other half is for the
// store to write it.
func TestRecordsReachTheStoreInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &promptStore{}
		j, err := auditwriter.New(auditwriter.Config{Store: store, Keeper: store, OperatorID: "acct_00000000000000000000000000"})
		if err != nil {
			t.Fatal(err)
		}
		collector, err := accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{j}})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := collector.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		lane := collector.Shard()
		const records = 3000
		for n := range records {
			store.mu.Lock()
			now := time.Now()
			store.put = append(store.put, now)
			store.mu.Unlock()
			lane.Emit(&accesslog.Record{Start: now.UnixMicro(), Status: 200, Method: accesslog.GET, Authenticated: true}, "", "/x")
			<-time.After(time.Duration(1+n%13) * 700 * time.Microsecond)
		}
		<-time.After(time.Second)
		store.mu.Lock()
		if store.taken != records {
			t.Errorf("the store took %d records of %d within a second", store.taken, records)
		}
		if store.longest > 125*time.Millisecond {
			t.Errorf("a record waited %v for the store", store.longest)
		}
		store.mu.Unlock()
		if err := collector.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := j.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
