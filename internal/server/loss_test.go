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

// promptStore accepts audit records without delay, and measures how long each waited.
type promptStore struct {
	auditwriter.Store
	auditwriter.Keeper

	mu      sync.Mutex
	emitted []time.Time // when each record was emitted that has not arrived yet, oldest first
	arrived int
	longest time.Duration
}

func (s *promptStore) AppendAuditChunks(_ context.Context, chunks []audit.Chunk, _ []*audit.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chunks {
		s.longest = max(s.longest, time.Since(s.emitted[0]))
		s.emitted, s.arrived = s.emitted[c.Records:], s.arrived+c.Records
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

// Guarantee: an audit record of the data plane reaches the store within 125 ms. A kill -9 may
// lose the last 250 ms (contract, section 7); the other half is for the store to write it.
func TestRecordsReachTheStoreInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &promptStore{}
		writer, err := auditwriter.New(auditwriter.Config{Store: store, Keeper: store, OperatorID: "acct_00000000000000000000000000"})
		if err != nil {
			t.Fatal(err)
		}
		collector, err := accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{writer}})
		if err != nil {
			t.Fatal(err)
		}
		if err := writer.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := collector.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		shard := collector.Shard()
		const records = 3000
		for n := range records {
			store.mu.Lock()
			now := time.Now()
			store.emitted = append(store.emitted, now)
			store.mu.Unlock()
			shard.Emit(&accesslog.Record{Start: now.UnixMicro(), Status: 200, Method: accesslog.GET, Authenticated: true}, "", "/x")
			<-time.After(time.Duration(1+n%13) * 700 * time.Microsecond)
		}
		<-time.After(time.Second)
		store.mu.Lock()
		if store.arrived != records {
			t.Errorf("got %d records in the store after a second, want %d", store.arrived, records)
		}
		if store.longest > 125*time.Millisecond {
			t.Errorf("a record reached the store after %v, want at most 125ms", store.longest)
		}
		store.mu.Unlock()
		if err := collector.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := writer.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
