package spooled_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store/spooled"
	"github.com/keygate/keygate/internal/traffic"
)

const second = 1_700_000_000

// write writes a batch of a kind as its sink does, with one record. number is the number of the batch.
func (h *harness) write(k spooled.Kind, number int64) error {
	h.Helper()
	b := accesslog.BatchID{Writer: "writer of " + k.String(), Number: number}
	at := time.Unix(second, number*1000)
	switch k {
	case spooled.Audit:
		var t audit.Table
		t.AddEvent(&audit.Event{Time: at.UnixMicro(), Request: id.NewFast(), Outcome: audit.Success, Method: "GET", Path: fmt.Sprintf("/%d", number)})
		chunks, err := t.Chunks(h.account)
		h.must(err)
		err = h.AppendAuditChunks(h.Context(), b, chunks, []*audit.Record{audit.NewGap(h.account, number, at, at)})
		if errors.Is(err, accesslog.ErrSpooled) {
			return nil
		}
		return err
	case spooled.Traffic:
		return h.AppendTraffic(h.Context(), b, []traffic.Chunk{{AccountID: h.account, Part: traffic.Seconds, Start: second, Body: []byte{byte(number), byte(number >> 8)}}})
	case spooled.Requests:
		r := requestlog.Record{AccountID: h.account, ID: id.NewAt(id.Request, at), Time: at, Method: "GET", Path: "/\xff" + strings.Repeat("x", 100), Status: 401}
		return h.AppendRequests(h.Context(), b, []requestlog.Record{r}, []requestlog.LeftOut{{AccountID: h.account, Second: second, Count: 1}})
	default:
		e, err := event.New(h.account, event.RateLimitExceeded, at, number)
		h.must(err)
		return h.AppendEvents(h.Context(), []event.Event{e})
	}
}

// stored returns how many batches of a kind are in the database.
func (h *harness) stored(k spooled.Kind) (n int) {
	h.Helper()
	switch k {
	case spooled.Audit:
		o, err := h.db.AuditOpen(h.Context(), h.account)
		h.must(err)
		var t audit.Table
		codec, err := audit.NewCodec()
		h.must(err)
		for i := range o.Chunks {
			_, err := codec.AddChunk(&t, &o.Chunks[i])
			h.must(err)
		}
		if len(o.Records) != t.Len() || len(o.Chunks) != t.Len() {
			h.Errorf("there are %d chunks with %d records, and %d gaps; want as many of each", len(o.Chunks), t.Len(), len(o.Records))
		}
		return t.Len()
	case spooled.Traffic:
		q := traffic.ChunkQuery{AccountID: h.account, Part: traffic.Seconds, Before: 1 << 40}
		h.must(h.db.ReadTraffic(h.Context(), q, func(*traffic.Chunk) error { n++; return nil }))
		return n
	case spooled.Requests:
		list, err := h.db.RequestRecords(h.Context(), h.account, requestlog.Filter{}, 10_000, "")
		h.must(err)
		for i := range list {
			if list[i].LeftOut != int64(len(list)) {
				h.Fatalf("%d requests are counted as left out, want %d", list[i].LeftOut, len(list))
			}
		}
		return len(list)
	default:
		h.must(h.db.View(h.Context(), func(tx control.ReadTx) error {
			list, err := tx.Events(h.Context(), h.account, control.EventFilter{}, control.Page{Limit: 10_000})
			n = len(list)
			return err
		}))
		return n
	}
}

// all are the kinds of records.
var all = []spooled.Kind{spooled.Audit, spooled.Traffic, spooled.Requests, spooled.Events}

// Guarantee: even if the database comes and goes, its responses are lost, and the process is killed, every
// record that the Store has taken is stored once, and nothing is lost.
func TestRecordsAreStoredOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, 64<<20)
			random := rand.New(rand.NewPCG(seed, 0))
			var taken [4]int
			for range 150 {
				switch n := random.IntN(20); {
				case n < 4:
					h.db.set(state(n % 3))
				case n == 4:
					h.kill()
				case n == 5:
					_ = h.Sync(t.Context())
				default:
					k := all[random.IntN(len(all))]
					h.must(h.write(k, int64(taken[k]+1)))
					taken[k]++
				}
			}
			h.db.set(well)
			h.kill()
			h.must(h.Sync(t.Context()))
			for _, k := range all {
				if got := h.stored(k); got != taken[k] {
					t.Errorf("%d batches of %s are stored, want %d", got, k, taken[k])
				}
			}
			if h.Bytes() != 0 || h.lost != [4]int{} {
				t.Errorf("the spool has %d bytes and has lost %v, want none", h.Bytes(), h.lost)
			}
		})
	}
}

// Guarantee: while records are in the spool, further records of their kind do not wait for the database, nor
// does the writer of the audit log. Other kinds go to the database as long as it takes them.
func TestOutageDelaysNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 1<<20)
	h.db.set(away)
	for n := range int64(5) {
		h.must(h.write(spooled.Audit, n+1))
	}
	if h.db.calls != 1 {
		t.Errorf("the database was called %d times, want once", h.db.calls)
	}
	if _, err := h.AuditOpen(t.Context(), h.account); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("AuditOpen: got %v, want an error at once", err)
	}
	h.db.set(well)
	h.must(h.write(spooled.Traffic, 1))
	if got := h.stored(spooled.Traffic); got != 1 {
		t.Errorf("%d batches of traffic are stored, want 1", got)
	}
	h.must(h.Sync(t.Context()))
	if _, err := h.AuditOpen(t.Context(), h.account); err != nil {
		t.Errorf("AuditOpen after the outage: %v", err)
	}
}

// Guarantee: beyond the bound the newest batch is refused, so that its sink keeps it; the log says so once. Kinds
// of records that callers can cause in any number leave room for the others. Batches that were taken are stored,
// in order.
func TestSpoolIsBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 1<<20)
	h.db.set(away)
	taken, refused := int64(0), 0
	for n := 0; refused < 3; n++ {
		if err := h.write(spooled.Requests, taken+1); err == nil {
			taken++
		} else {
			refused++
		}
	}
	if got := h.Bytes(); got > 1<<20/8 || got < 1<<20/10 {
		t.Errorf("the spool has %d bytes, want nearly an eighth of 1 MiB", got)
	}
	h.must(h.write(spooled.Audit, 1))
	if got := h.log.count("the spool takes no more records; they are kept in memory, and further ones are lost and counted"); got != 1 {
		t.Errorf("the log says %d times that the spool is full, want once", got)
	}
	h.db.set(well)
	if err := h.write(spooled.Requests, taken+1); err == nil {
		t.Error("a batch overtook those in the spool")
	}
	h.must(h.Sync(t.Context()))
	h.must(h.write(spooled.Requests, taken+1))
	if got := h.stored(spooled.Requests); int64(got) != taken+1 {
		t.Errorf("%d batches are stored, want %d", got, taken+1)
	}
}

// Guarantee: a batch that a kill has cut short, and a batch that the database will never take, are counted as
// lost, and delay no other batch.
func TestLostBatches(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 1<<20)
	h.db.set(away)
	for n := range int64(3) {
		for _, k := range all {
			h.must(h.write(k, n+1))
		}
	}
	stranger, err := event.New(id.New(id.Account), event.RateLimitExceeded, time.Now(), 1)
	h.must(err)
	h.must(h.AppendEvents(t.Context(), []event.Event{stranger}))
	files, err := filepath.Glob(filepath.Join(h.cfg.Dir, "one", "requests-*"))
	h.must(err)
	info, err := os.Stat(files[0])
	h.must(err)
	h.must(os.Truncate(files[0], info.Size()-1))
	h.kill()
	h.must(h.write(spooled.Requests, 4))
	h.must(h.write(spooled.Events, 4))
	h.db.set(well)
	h.must(h.Sync(t.Context()))
	for k, want := range map[spooled.Kind]int{spooled.Audit: 3, spooled.Traffic: 3, spooled.Requests: 3, spooled.Events: 4} {
		if got := h.stored(k); got != want {
			t.Errorf("%d batches of %s are stored, want %d", got, k, want)
		}
	}
	if want := [4]int{spooled.Requests: 1, spooled.Events: 1}; h.lost != want {
		t.Errorf("the lost records are %v, want %v", h.lost, want)
	}
}

// Guarantee: the records of another installation stay where they are, and the log says so.
func TestOtherInstallation(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 1<<20)
	h.db.set(away)
	h.must(h.write(spooled.Audit, 1))
	h.cfg.Installation = "two"
	h.db.set(well)
	h.kill()
	h.must(h.Sync(t.Context()))
	if got := h.stored(spooled.Audit); got != 0 {
		t.Errorf("%d batches of another installation are stored", got)
	}
	if got := h.log.count("the spool has records of another database: start the server with that database once to store them, or remove them"); got != 1 {
		t.Errorf("the log says %d times that there are others, want once", got)
	}
	h.cfg.Installation = "one"
	h.kill()
	h.must(h.Sync(t.Context()))
	if got := h.stored(spooled.Audit); got != 1 {
		t.Errorf("%d batches are stored, want 1", got)
	}
}

// Guarantee: a service that is stopped writes what it can, and leaves the rest for the next process.
func TestStop(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 1<<20)
	h.must(h.Start(t.Context()))
	h.db.set(away)
	h.must(h.write(spooled.Audit, 1))
	h.must(h.Stop(t.Context()))
	h.db.set(well)
	h.kill()
	h.must(h.Stop(t.Context()))
	if got := h.stored(spooled.Audit); got != 1 {
		t.Errorf("%d batches are stored, want 1", got)
	}
	if _, err := os.Stat(h.cfg.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of an empty spool is there: %v", err)
	}
}

// Guarantee: a batch whose caller has given up is not put into the spool.
func TestCanceledCall(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 1<<20)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.AppendTraffic(ctx, accesslog.BatchID{}, []traffic.Chunk{{AccountID: h.account}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the call was canceled", err)
	}
	if h.Bytes() != 0 {
		t.Error("the batch is in the spool")
	}
}
