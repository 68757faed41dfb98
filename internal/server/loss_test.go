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
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/traffic/meter"
)

// arrivals measures how long each record waits for the store.
type arrivals struct {
	mu      sync.Mutex
	emitted []time.Time // when each record was emitted that has not arrived yet, oldest first
	arrived int
	longest time.Duration
}

// arrive notes that the n oldest records have arrived.
func (a *arrivals) arrive(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n > 0 {
		a.longest = max(a.longest, time.Since(a.emitted[0]))
	}
	a.emitted, a.arrived = a.emitted[n:], a.arrived+n
}

// promptStore accepts audit records without delay.
type promptStore struct {
	auditwriter.Store
	auditwriter.Keeper
	*arrivals
}

func (s *promptStore) AppendAuditChunks(_ context.Context, _ accesslog.BatchID, chunks []audit.Chunk, _ []*audit.Record) error {
	for _, c := range chunks {
		s.arrive(c.Records)
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

// promptTraffic accepts traffic counts without delay.
type promptTraffic struct {
	traffic.Store
	*arrivals
}

func (s *promptTraffic) AppendTraffic(_ context.Context, _ accesslog.BatchID, chunks []traffic.Chunk) error {
	for i := range chunks {
		if c := &chunks[i]; c.Part == traffic.Keys { // this part has every request once
			s.arrive(int(c.Requests()))
		}
	}
	return nil
}

func (s *promptTraffic) TrafficBacklog(context.Context, traffic.Tier, traffic.State, int64, int) ([]traffic.Backlog, error) {
	return nil, nil
}

func (s *promptTraffic) TrimTraffic(context.Context, traffic.Part, traffic.Tier, int64, int) (bool, error) {
	return false, nil
}

// Guarantee: an audit record of the data plane and the count of a request reach the store within
// 125 ms. A kill -9 may lose the last 250 ms (contract, section 7); the other half is for the
// store to write it.
func TestRecordsReachTheStoreInTime(t *testing.T) {
	t.Run("audit log", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := &arrivals{}
			store := &promptStore{arrivals: a}
			writer, err := auditwriter.New(auditwriter.Config{Store: store, Keeper: store, OperatorID: "acct_00000000000000000000000000"})
			if err != nil {
				t.Fatal(err)
			}
			testInTime(t, writer, a)
		})
	})
	t.Run("traffic", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := &arrivals{}
			m, err := meter.New(meter.Config{Store: &promptTraffic{arrivals: a}})
			if err != nil {
				t.Fatal(err)
			}
			testInTime(t, m, a)
		})
	})
}

// testInTime emits records to a sink and checks when they arrive.
func testInTime(t *testing.T, to sink, a *arrivals) {
	t.Helper()
	collector, err := accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{to}})
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := collector.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	shard := collector.Shard()
	const records = 3000
	for n := range records {
		a.mu.Lock()
		now := time.Now()
		a.emitted = append(a.emitted, now)
		a.mu.Unlock()
		shard.Emit(&accesslog.Record{Start: now.UnixMicro(), Account: [16]byte{1}, Status: 200, Method: accesslog.GET, Authenticated: true}, "", "/x")
		<-time.After(time.Duration(1+n%13) * 700 * time.Microsecond)
	}
	<-time.After(time.Second)
	a.mu.Lock()
	if a.arrived != records {
		t.Errorf("got %d records in the store after a second, want %d", a.arrived, records)
	}
	if a.longest > 125*time.Millisecond {
		t.Errorf("a record reached the store after %v, want at most 125ms", a.longest)
	}
	a.mu.Unlock()
	if err := collector.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := to.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
