package storetest

import (
	"bytes"
	"log/slog"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/requestlog"
	requestwriter "github.com/keygate/keygate/internal/requestlog/writer"
)

// Guarantee: a flood of one account, through several writers, shortens the history of that account alone: others that have no
// more than their share keep everything. The log never takes more than its bound, 1/1024 of it and a batch for each writer. The
// removal is logged once an hour, and counted.
func testRequestFlood(h *harness) {
	const bound, batch = 1 << 20, 250
	now := time.Now()
	var out bytes.Buffer
	var writers [2]*requestwriter.Writer
	for i := range writers {
		var err error
		writers[i], err = requestwriter.New(requestwriter.Config{
			Store: h.Engine, Now: func() time.Time { return now }, MaxBytes: bound, PerSecond: 1 << 20, Log: slog.New(slog.NewTextHandler(&out, nil)),
		})
		h.must(err)
	}
	take := func(w *requestwriter.Writer, account [16]byte, n int) {
		for range n {
			now = now.Add(time.Millisecond)
			w.Take([]accesslog.Entry{{
				Record: accesslog.Record{Account: account, Request: id.NewFastAt(now.UnixMilli()), Start: now.UnixMicro(), Status: 401, Result: accesslog.KeyInvalid},
				Path:   "/" + strings.Repeat("x", 200),
			}})
		}
	}
	size := func() (all int64) {
		for _, bytes := range h.requestBytes() {
			all += bytes
		}
		return all
	}
	victims, attacker := [][16]byte{id.NewFast(), id.NewFast()}, id.NewFast()
	const own = 500 // requests of each of the others, with less than a third of the bound
	for _, v := range victims {
		take(writers[0], v, own)
	}
	h.must(writers[0].Sync(h.Context()))
	var largest int64
	for round := range 40 {
		w := writers[round%2]
		take(w, attacker, batch)
		h.must(w.Sync(h.Context()))
		largest = max(largest, size())
	}
	const record = 600 // at least
	if most := int64(bound + 2*(bound/1024+batch*record)); largest > most || largest < bound/2 {
		h.Errorf("the log took up to %d bytes, want %d to %d", largest, bound/2, most)
	}
	for _, v := range victims {
		same(h, "requests of another account", len(h.stored(id.Format(id.Account, v))), own)
	}
	name := id.Format(id.Account, attacker)
	kept := h.stored(name)
	same(h, "counted bytes of the flood", h.requestBytes()[name], sizeOf(kept))
	removed := int(writers[0].RemovedEarly() + writers[1].RemovedEarly())
	same(h, "requests of the flood that are kept or removed", len(kept)+removed, 40*batch)
	for i := range kept[1:] {
		if kept[i+1].Time.Sub(kept[i].Time) > time.Millisecond {
			h.Fatalf("between %s and %s requests were removed, want the oldest alone", kept[i].Time, kept[i+1].Time)
		}
	}
	same(h, "lines", strings.Count(out.String(), "removed early"), 2)
	now = now.Add(time.Hour)
	take(writers[0], attacker, batch)
	h.must(writers[0].Sync(h.Context()))
	h.must(writers[0].Trim(h.Context()))
	same(h, "lines after an hour", strings.Count(out.String(), "removed early"), 3)
	if got := size(); got > bound {
		h.Errorf("after maintenance the log takes %d bytes, want %d at most", got, bound)
	}
	same(h, "an account in the log", strings.Count(out.String(), "account="+name), 3)
	var other requestlog.AccountBytes
	other.AccountID = id.Format(id.Account, victims[0])
	cut, err := h.CutRequests(h.Context(), other, 1<<20) // what it had is still there to be removed
	h.must(err)
	same(h, "requests of another account that were there", cut.Records, own)
}
