package writer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/service"
)

const (
	// idleAfter is the time without records after which an account's memory is freed.
	idleAfter = time.Minute
	// sealPause is the least time between the starts of two writes that seal blocks, so
	// that one wait for the disk serves several blocks. An account with sealAnyway open
	// records does not wait, so that its open end stays cheap to read.
	sealPause  = 500 * time.Millisecond
	sealAnyway = 4 * audit.RunRecords
	// joinFrom is the number of chunks at which an open end is rewritten as one chunk, so that it
	// stays cheap to read when records come one by one.
	joinFrom = 64
	// stepBack is how far the wall clock may go back between two writes before the
	// earlier records are sealed, because the records of a block are sorted by time.
	stepBack = time.Second
	// complainEvery is the least time between two log lines about store failures.
	complainEvery = time.Minute
	stopAttempts  = 3
	// keptRecords and keptTexts (bytes) are the maximum size of a table whose memory
	// is reused.
	keptRecords = 16 << 10
	keptTexts   = 1 << 20
	stopWait    = 50 * time.Millisecond
)

// Start begins to write, until Stop. It returns an error if the store cannot be read.
func (w *Writer) Start(ctx context.Context) error {
	if err := w.count(ctx); err != nil {
		return fmt.Errorf("start the audit log writer: %w", err)
	}
	err := w.group.Start(
		w.run,
		func(ctx context.Context) {
			w.maintain(ctx)
			service.Every(ctx, maintenancePeriod, w.maintain)
		},
	)
	if err != nil {
		return fmt.Errorf("start the audit log writer: %w", err)
	}
	return nil
}

// run writes until ctx ends. A write is due a period after the last write took the records from
// memory, not after it has ended, so that records taken since are at most a period old, however
// long the store took. If the store fails, it is tried again a period later.
func (w *Writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		// A write that has begun is finished: it is short.
		service.Wait(ctx, time.Until(w.write(w.group.Grace())))
	}
}

// Stop finishes the write that runs, writes everything taken so far, and ends. It
// returns an error if that fails or ctx ends first. It may then be called again.
func (w *Writer) Stop(ctx context.Context) error {
	if err := w.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the audit log writer: %w", err)
	}
	var err error
	for attempt := range stopAttempts {
		if attempt > 0 {
			service.Wait(ctx, stopWait)
		}
		if err = w.Sync(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("stop the audit log writer: %w", err)
	}
	return nil
}

// lock takes writeLock. Its error is ctx's.
func (w *Writer) lock(ctx context.Context) error {
	select {
	case w.writeLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Writer) unlock() { <-w.writeLock }

// Sync returns when every record taken before the call is in the store, or returns the
// error that prevents it.
func (w *Writer) Sync(ctx context.Context) error {
	if err := w.lock(ctx); err != nil {
		return err
	}
	defer w.unlock()
	return w.flush(ctx)
}

const unwritten = "writing the audit log failed; it is retried, and records beyond the memory limit are lost and counted"

const unjoined = "joining chunks of the audit log failed; it is retried"

// write is one step of the fast loop, and returns the time of the next. Records taken meanwhile
// wait for at most one transaction that seals.
func (w *Writer) write(ctx context.Context) (next time.Time) {
	if err := w.lock(ctx); err != nil {
		return time.Now().Add(w.cfg.Period)
	}
	defer w.unlock()
	err := w.flush(ctx)
	w.complain(err, unwritten)
	now := w.last
	pausing := now.Sub(w.sealed).Abs() < sealPause
	for account, waiting := range w.open {
		switch {
		case waiting.Records >= audit.RunRecords:
			if pausing && waiting.Records < sealAnyway {
				continue
			}
			w.sealRuns(ctx, account, waiting.Records)
			w.sealed = now
			if left := w.open[account]; left != nil && left.Records >= audit.RunRecords {
				w.complain(w.join(ctx, account), unjoined) // they are fewer once those with a Count are merged
				w.catchUp(ctx)
			}
		case waiting.Chunks >= joinFrom:
			w.complain(w.join(ctx, account), unjoined)
			w.catchUp(ctx)
		}
	}
	if err != nil {
		return time.Now().Add(w.cfg.Period)
	}
	return w.collected.Add(w.cfg.Period)
}

// sealRuns seals the full blocks of an open end with the given number of records, and
// writes the records taken meanwhile.
func (w *Writer) sealRuns(ctx context.Context, accountID string, records int) {
	for ; records >= audit.RunRecords; records -= sealBlocks * audit.RunRecords {
		more, err := w.sealSome(ctx, accountID, false)
		w.complain(err, "sealing a block of the audit log failed; it is retried")
		w.catchUp(ctx)
		if err != nil || !more {
			return
		}
	}
}

// catchUp writes the records in memory if the last write was a period ago.
func (w *Writer) catchUp(ctx context.Context) {
	if w.cfg.Now().Sub(w.last) >= w.cfg.Period {
		w.complain(w.flush(ctx), unwritten)
	}
}

// complain logs an error, at most once in complainEvery.
func (w *Writer) complain(err error, message string) {
	if err == nil {
		return
	}
	if now := w.cfg.Now(); now.Sub(w.failed).Abs() >= complainEvery {
		w.failed = now
		w.cfg.Log.Error(message, "error", err, "lost", w.Lost())
	}
}

// flush writes the records in memory. The caller holds writeLock.
func (w *Writer) flush(ctx context.Context) error {
	now := w.cfg.Now()
	// Round drops the monotonic reading, by which Sub would never see the clock go back.
	if back := w.last.Round(0).Sub(now.Round(0)); back > stepBack {
		w.cfg.Log.Warn("the clock went back; sealing the audit log up to now to keep its order", "by", back.String())
		w.complain(w.sealAll(ctx), "sealing the audit log failed")
	}
	w.last, w.collected = now, time.Now()
	w.collect(now)
	for len(w.sending.chunks)+len(w.sending.records)+len(w.unsent.chunks)+len(w.gaps) > 0 {
		if err := w.send(ctx); err != nil {
			return err
		}
	}
	return nil
}

// send writes the open batch, which the store may have already, or else a new batch of everything
// that is to be written.
func (w *Writer) send(ctx context.Context) error {
	batch, isNew := w.batches.Open()
	s := &w.sending
	if isNew {
		w.sending, w.unsent = w.unsent, outgoing{chunks: w.sending.chunks[:0]}
		for _, account := range slices.Sorted(maps.Keys(w.gaps)) { // the order in which the store locks them
			l := w.gaps[account]
			s.records = append(s.records, audit.NewGap(account, l.records, l.first, l.last))
		}
		clear(w.gaps)
	}
	err := w.cfg.Store.AppendAuditChunks(ctx, batch, s.chunks, s.records)
	if fault.CodeOf(err) == fault.NotFound && len(s.records) > 0 {
		// An account that does not exist has no log for a gap record.
		s.records = nil
		err = w.cfg.Store.AppendAuditChunks(ctx, batch, s.chunks, nil)
	}
	spooled := errors.Is(err, accesslog.ErrSpooled)
	if err != nil && !spooled {
		return err
	}
	w.batches.Close()
	if !spooled { // else the next maintenance counts them, if they are in the store by then
		w.countOpen(s.chunks)
	}
	w.mu.Lock()
	w.held -= s.weight
	w.mu.Unlock()
	clear(s.chunks)
	*s = outgoing{chunks: s.chunks[:0]}
	return nil
}

// countOpen adds chunks to the sizes of the open ends.
func (w *Writer) countOpen(chunks []audit.Chunk) {
	for i := range chunks {
		c := &chunks[i]
		waiting := w.open[c.AccountID]
		if waiting == nil {
			waiting = &audit.Waiting{AccountID: c.AccountID}
			w.open[c.AccountID] = waiting
		}
		waiting.Chunks++
		waiting.Records += c.Records
	}
}

// collect encodes the taken records as chunks. now is the time of the write.
func (w *Writer) collect(now time.Time) {
	type part struct {
		account string
		table   *audit.Table
	}
	var parts []part
	w.mu.Lock()
	w.collection++
	for u, in := range w.intakes {
		accountID := w.cfg.OperatorID
		if u != [16]byte{} {
			accountID = id.Format(id.Account, u)
		}
		if in.loss.records > 0 {
			if w.gaps[accountID] == nil {
				w.gaps[accountID] = &loss{}
			}
			w.gaps[accountID].add(in.loss)
			in.loss = loss{}
		}
		if in.table.Len() == 0 {
			if now.Sub(in.used).Abs() > idleAfter {
				delete(w.intakes, u)
			}
			continue
		}
		parts = append(parts, part{accountID, in.table})
		in.table, in.other = in.other, in.table
		w.unsent.weight += in.weight
		in.weight, in.used = 0, now
	}
	w.mu.Unlock()
	for _, p := range parts {
		p.table.Sort()
		chunks, err := p.table.Chunks(p.account)
		if err != nil {
			// A table accepts only what it can encode, so this is a bug.
			w.cfg.Log.Error("encoding audit records failed; they are lost", "error", err, "records", p.table.Len())
			w.mu.Lock()
			w.lost += uint64(p.table.Len())
			w.mu.Unlock()
		}
		w.unsent.chunks = append(w.unsent.chunks, chunks...)
		if p.table.Len() > keptRecords || p.table.Texts() > keptTexts {
			*p.table = audit.Table{} // free the memory of a burst
		} else {
			p.table.Reset()
		}
	}
}

// count reads the sizes of the open ends from the store.
func (w *Writer) count(ctx context.Context) error {
	waiting, err := w.cfg.Keeper.AuditWaiting(ctx)
	if err != nil {
		return err
	}
	clear(w.open)
	for i := range waiting {
		w.open[waiting[i].AccountID] = &waiting[i]
	}
	return nil
}

// join rewrites an open end of many small chunks as one chunk.
func (w *Writer) join(ctx context.Context, accountID string) error {
	o, err := w.cfg.Store.AuditOpen(ctx, accountID)
	if err != nil {
		return err
	}
	waiting := &audit.Waiting{AccountID: accountID, Managed: len(o.Records)}
	gone := make([]int64, 0, len(o.Chunks))
	for i := range o.Chunks {
		c := &o.Chunks[i]
		waiting.Chunks, waiting.Records = waiting.Chunks+1, waiting.Records+c.Records
		gone = append(gone, c.ID)
	}
	w.open[accountID] = waiting
	if waiting.Chunks < 2 {
		return nil
	}
	var t audit.Table
	lost, err := w.codec.Gather(&t, &audit.Open{Chunks: o.Chunks})
	if err != nil {
		return err
	}
	if t.Len() > audit.RunRecords {
		return nil
	}
	content, err := t.Encode(nil)
	if err != nil {
		return err
	}
	first, _ := t.Span()
	err = w.cfg.Store.JoinAuditChunks(ctx, gone, audit.Chunk{AccountID: accountID, Records: t.Len(), First: first, Content: content})
	switch {
	case fault.CodeOf(err) == fault.Conflict:
		delete(w.open, accountID) // the next maintenance counts it again
		return nil
	case err == nil:
		waiting.Chunks, waiting.Records = 1, t.Len()
		w.damaged(accountID, lost)
	}
	return err
}

// damaged counts and logs stored records that can no longer be read.
func (w *Writer) damaged(accountID string, lost int) {
	if lost == 0 {
		return
	}
	w.mu.Lock()
	w.lost += uint64(lost)
	w.mu.Unlock()
	w.cfg.Log.Error("a chunk of the audit log is damaged; its records are lost, and the log shows a gap", "account", accountID, "records", lost)
}
