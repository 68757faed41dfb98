package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// Benchmark measures an engine with the writes of a busy node, so that engines can be compared. open
// returns an empty store and closes it with b.Cleanup.
func Benchmark(b *testing.B, open func(b *testing.B) store.Engine) {
	for _, bench := range []struct {
		name string
		run  func(*bench)
	}{
		{"Keys", func(b *bench) { benchKeys(b, 1) }},
		{"KeysSideBySide", func(b *bench) { benchKeys(b, keyCallers) }},
		{"Deliveries", benchDeliveries},
		{"AuditAppend", benchAuditAppend},
		{"AuditSeal", benchAuditSeal},
		{"Traffic", benchTraffic},
		{"Requests", benchRequests},
		{"Quotas", benchQuotas},
	} {
		b.Run(bench.name, func(b *testing.B) { bench.run(newBench(b, open(b))) })
	}
}

// bench is one benchmark with its store, which has one account.
type bench struct {
	*testing.B
	store.Engine
	account account.Account
	done    int // records that were written
}

func newBench(b *testing.B, e store.Engine) *bench {
	m := &bench{B: b, Engine: e, account: account.Account{ID: id.New(id.Account), Name: "bench", Tier: account.Scale, CreatedAt: time.Now()}}
	m.must(e.Update(b.Context(), func(tx control.Tx) error { return tx.InsertAccount(b.Context(), &m.account) }))
	return m
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// report reports how many records were written in a second.
func (b *bench) report(unit string) {
	b.ReportMetric(float64(b.done)/b.Elapsed().Seconds(), unit+"/s")
}

// benchDeliveries measures claims of 200 deliveries of ten endpoints, and their results.
func benchDeliveries(b *bench) {
	const each, endpoints, events = 20, 10, 400
	now := time.Now().Truncate(time.Microsecond)
	c := sender.Claim{Now: now.Add(time.Hour), Until: now.Add(2 * time.Hour)}
	b.must(b.Update(b.Context(), func(tx control.Tx) error {
		for range endpoints {
			w := newWebhook(&b.account, event.KeyCreated)
			c.Wants = append(c.Wants, sender.Want{WebhookID: w.ID, Limit: each})
			if err := tx.InsertWebhook(b.Context(), w); err != nil {
				return err
			}
		}
		return nil
	}))
	for b.Loop() {
		jobs := b.claim(&c)
		if len(jobs) == 0 {
			b.StopTimer()
			for range events / 100 {
				b.addEvents(100)
			}
			b.StartTimer()
			jobs = b.claim(&c)
		}
		results := make([]sender.Result, len(jobs))
		for i, j := range jobs {
			results[i] = sender.Result{Lease: j.Lease, State: webhook.Delivered,
				Attempt: webhook.Attempt{Number: j.Attempt, StartedAt: now, Duration: time.Millisecond, Status: 200, Response: []byte("ok")}}
		}
		late, err := b.FinishDeliveries(b.Context(), results)
		b.must(err)
		b.done += len(jobs) - late
	}
	b.report("deliveries")
}

func (b *bench) claim(c *sender.Claim) []sender.Job {
	c.Token = sender.TokenOf("bench", id.New("t"))
	jobs, err := b.ClaimDeliveries(b.Context(), *c)
	b.must(err)
	return jobs
}

func (b *bench) addEvents(n int) {
	events := make([]event.Event, n)
	for i := range events {
		var err error
		events[i], err = event.New(b.account.ID, event.KeyCreated, time.Now(), event.Key{KeyID: id.New(id.Key)})
		b.must(err)
	}
	b.must(b.AppendEvents(b.Context(), events))
	for {
		accountID, _, err := b.FanOut(b.Context(), "", time.Now(), 500)
		b.must(err)
		if accountID == "" {
			return
		}
	}
}

// auditTable returns a table of n records.
func auditTable(n int) *audit.Table {
	t := &audit.Table{}
	for i := range n {
		e := audit.Event{Time: time.Now().UnixMicro(), Request: id.NewFast(), Key: fixedID(byte(i)), Outcome: audit.Success, Method: "GET", Path: fmt.Sprint("/orders/", i)}
		t.AddEvent(&e)
	}
	t.Sort()
	return t
}

// benchAuditAppend measures the writes of a node with 1,000 records each, one after the other.
func benchAuditAppend(b *bench) {
	const records = 1000
	chunks, err := auditTable(records).Chunks(b.account.ID)
	b.must(err)
	ids := accesslog.NewBatches()
	for b.Loop() {
		batch, _ := ids.Open()
		b.must(b.AppendAuditChunks(b.Context(), batch, chunks, nil))
		ids.Close()
		b.done += records
	}
	b.report("records")
}

// benchAuditSeal measures a writer that takes full blocks, writes and seals them.
func benchAuditSeal(b *bench) {
	w, err := auditwriter.New(auditwriter.Config{Store: b.Engine, Keeper: b.Engine, OperatorID: b.account.ID})
	b.must(err)
	accountID, _ := id.Parse(id.Account, b.account.ID)
	entries := make([]accesslog.Entry, audit.RunRecords)
	for b.Loop() {
		for i := range entries {
			e := &entries[i]
			e.Account, e.Start, e.Request, e.Authenticated, e.Path = accountID, time.Now().UnixMicro(), id.NewFast(), true, "/orders"
		}
		w.Take(entries)
		b.must(w.Seal(b.Context()))
		b.done += len(entries)
	}
	b.report("records")
}

// benchTraffic measures the writes of a node: four chunks of 2 KB each, one write after the other.
func benchTraffic(b *bench) {
	ids := accesslog.NewBatches()
	var chunks []traffic.Chunk
	for p := traffic.Gateways; p <= traffic.Seconds; p++ {
		c := newChunk(b.account.ID, p, traffic.Minutes, 60, 1, 2)
		c.Body = make([]byte, 2<<10)
		chunks = append(chunks, c)
	}
	for b.Loop() {
		batch, _ := ids.Open()
		b.must(b.AppendTraffic(b.Context(), batch, chunks))
		ids.Close()
		b.done++
	}
	b.report("writes")
}

// benchRequests measures writes of 250 refused requests each, one after the other.
func benchRequests(b *bench) {
	ids := accesslog.NewBatches()
	records := make([]requestlog.Record, 250)
	for b.Loop() {
		for i := range records {
			records[i] = newRequest(b.account.ID, time.Duration(b.done+i)*time.Millisecond)
		}
		batch, _ := ids.Open()
		b.must(b.AppendRequests(b.Context(), batch, records, nil))
		ids.Close()
		b.done += len(records)
	}
	b.report("requests")
}
