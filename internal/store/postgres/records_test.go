package postgres

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/traffic"
)

// Guarantee: a batch that is written again while its first transaction has not ended waits for that
// transaction, and is stored exactly once, whether or not that transaction commits.
func TestBatchRepeatedBeforeItsFirstTransactionEnds(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("commits ", commits), func(t *testing.T) {
			c := newNodes(t, 2)
			batch := accesslog.BatchID{Writer: "w", Number: 7}
			chunks := []traffic.Chunk{{AccountID: c.account, Part: traffic.Keys, Start: 60, Body: []byte{1}}}
			repeated := make(chan error, 1)
			err := c.stores[0].record(t.Context(), func(one *tx) error {
				isNew, err := one.TakeBatch(t.Context(), batch)
				c.must(err)
				if !isNew {
					t.Error("the batch is taken for a repetition")
				}
				c.must(one.InsertTraffic(t.Context(), chunks))
				go func() { repeated <- c.stores[1].AppendTraffic(t.Context(), batch, chunks) }()
				waitForLock(t, one)
				if !commits {
					return context.Canceled
				}
				return nil
			})
			if commits {
				c.must(err)
			}
			c.must(<-repeated)
			n := 0
			q := traffic.ChunkQuery{AccountID: c.account, Part: traffic.Keys, Before: 3600}
			c.must(c.stores[0].ReadTraffic(t.Context(), q, func(*traffic.Chunk) error { n++; return nil }))
			if n != 1 {
				t.Errorf("the batch is stored %d times, want once", n)
			}
		})
	}
}

// oneRecord returns a chunk with one record.
func (c *nodes) oneRecord(path string) []audit.Chunk {
	c.Helper()
	var t audit.Table
	t.AddEvent(&audit.Event{Time: time.Now().UnixMicro(), Request: id.NewFast(), Outcome: audit.Success, Method: "GET", Path: path})
	chunks, err := t.Chunks(c.account)
	c.must(err)
	return chunks
}

// Guarantee: chunks of the audit log that are committed after chunks with higher numbers were
// sealed or joined stay in the log.
func TestAuditChunksThatCommitLate(t *testing.T) {
	for _, what := range []string{"sealed", "joined"} {
		t.Run(what, func(t *testing.T) {
			c := newNodes(t, 2)
			db := c.stores[1]
			w, err := auditwriter.New(auditwriter.Config{Store: db, Keeper: db, OperatorID: c.account})
			c.must(err)
			c.must(c.stores[0].record(t.Context(), func(one *tx) error {
				c.must(one.InsertAuditChunks(t.Context(), c.oneRecord("/late")))
				for range 3 {
					c.must(db.AppendAuditChunks(t.Context(), accesslog.BatchID{}, c.oneRecord("/early"), nil))
				}
				if what == "sealed" {
					c.must(w.Seal(t.Context()))
					return nil
				}
				o, err := db.AuditOpen(t.Context(), c.account)
				c.must(err)
				chunks := c.oneRecord("/joined")
				c.must(db.JoinAuditChunks(t.Context(), []int64{o.Chunks[0].ID, o.Chunks[1].ID, o.Chunks[2].ID}, chunks[0]))
				return nil
			}))
			o, err := db.AuditOpen(t.Context(), c.account)
			c.must(err)
			want := map[string]int{"sealed": 1, "joined": 2}[what]
			if len(o.Chunks) != want {
				t.Errorf("the open end has %d chunks, want %d", len(o.Chunks), want)
			}
			c.must(w.Seal(t.Context()))
			if o, err = db.AuditOpen(t.Context(), c.account); err != nil || len(o.Chunks) != 0 {
				t.Errorf("after the sealing the open end has %d chunks, %v", len(o.Chunks), err)
			}
			c.verify(map[string]int64{"sealed": 4, "joined": 2}[what])
		})
	}
}

// verify checks the chain of the account, and its number of records.
func (c *nodes) verify(records int64) {
	c.Helper()
	c.must(c.stores[0].view(c.Context(), c.stores[0].readers, func(t *readTx) error {
		chain, err := t.AuditChain(c.Context(), c.account)
		if err != nil {
			return err
		}
		report, err := audit.Verify(chain, func(yield func(*audit.Block, error) bool) {
			blocks, err := t.AuditBlocks(c.Context(), c.account, 0, 1000)
			for _, b := range blocks {
				if !yield(b, err) {
					return
				}
			}
		}, nil)
		if err == nil && report.Records != records {
			c.Errorf("the chain has %d records, want %d", report.Records, records)
		}
		return err
	}))
}

// Guarantee: texts with any bytes, such as a path that was cut within a character, can be stored.
func TestTextsWithAnyBytes(t *testing.T) {
	c := newNodes(t, 1)
	const odd = "/\xff\x00ü\xc3"
	r := requestlog.Record{AccountID: c.account, ID: id.New(id.Request), Time: time.Now().UTC().Truncate(time.Microsecond), Method: odd, Path: odd, KeyPrefix: odd, Detail: odd, Status: 500}
	c.must(c.stores[0].AppendRequests(t.Context(), accesslog.BatchID{}, []requestlog.Record{r}, nil))
	got, err := c.stores[0].RequestRecord(t.Context(), c.account, r.ID)
	c.must(err)
	if *got != r {
		t.Errorf("got %+v, want %+v", *got, r)
	}
	a := audit.Record{AccountID: c.account, Time: r.Time, Kind: audit.Management, Outcome: audit.Success, Method: odd, Path: odd, Target: odd, KeyPrefix: odd, RequestID: odd,
		Diff: audit.Diff{"name": {nil, odd}}}
	c.must(c.stores[0].write(t.Context(), func(t *tx) error { return t.AppendAudit(c.Context(), &a) }))
	open, err := c.stores[0].AuditOpen(t.Context(), c.account)
	c.must(err)
	if len(open.Records) != 1 || open.Records[0].Path != odd || open.Records[0].Target != odd {
		t.Errorf("got %+v", open.Records)
	}
}

// Guarantee: the statements of the queue and of lists read indexes: none reads a table from its
// beginning to its end, however few rows it has.
func TestRecordPlans(t *testing.T) {
	db := fresh(t)
	for name, query := range map[string]struct {
		text string
		args []any
	}{
		"newly created": {rows.NewlyCreatedQuery, []any{int64(1), 1000}},
		"became due":    {rows.BecameDueQuery, []any{int64(1), "wh_1", int64(2), 1000}},
		"all due":       {rows.AllDueQuery, []any{"", 64, int64(1)}},
		"claim":         {rows.CandidatesQuery, []any{"wh_1", int64(1), int64(5), int64(5), int64(5)}},
		"listeners":     {rows.ListenersQuery, []any{"acct_1", "key.created", 17}},
		"subscribed":    {rows.SubscribedQuery, []any{"acct_1", "wh_1", int64(1), "key.created", 200}},
		"release":       {`UPDATE deliveries SET token = NULL, due_at = next_at WHERE token >= $1 AND token < $2 AND starts_with(token, $1)`, []any{"a/", "a0"}},
	} {
		t.Run(name, func(t *testing.T) {
			var plan string
			err := db.write(t.Context(), func(tx *tx) error {
				if _, err := tx.Exec(t.Context(), "prefer indexes", `SET LOCAL enable_seqscan = off`); err != nil {
					return err
				}
				return tx.Query(t.Context(), "explain", `EXPLAIN `+query.text, query.args, func(r *rows.Row) error {
					var line string
					err := r.Scan(&line)
					plan += line + "\n"
					return err
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			if regexp.MustCompile(`Seq Scan on (deliveries|events|webhooks|requests)`).MatchString(plan) {
				t.Errorf("the plan reads a table:\n%s", plan)
			}
		})
	}
}
