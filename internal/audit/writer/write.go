package writer

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/service"
)

const (
	// idleAfter is the number of writes without records after which an account's
	// memory is freed: about a minute.
	idleAfter = 600
	// sealPause is the number of writes between two that seal blocks, so that one
	// wait for the disk serves several blocks. An account with sealAnyway open
	// records does not wait, so that its open end stays cheap to read.
	sealPause  = 4
	sealAnyway = 4 * audit.RunRecords
	// joinFrom is the number of chunks from which an open end is rewritten as one
	// chunk, so that it stays cheap to read if records come one by one.
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
func (j *Writer) Start(ctx context.Context) error {
	if err := j.count(ctx); err != nil {
		return fmt.Errorf("start the audit log writer: %w", err)
	}
	err := j.group.Start(
		func(ctx context.Context) {
			// A write that has begun is finished: it is short.
			write := func(context.Context) { j.write(j.group.Grace()) }
			write(ctx)
			service.Every(ctx, j.cfg.Period, write)
		},
		func(ctx context.Context) {
			j.maintain(ctx)
			service.Every(ctx, maintenancePeriod, j.maintain)
		},
	)
	if err != nil {
		return fmt.Errorf("start the audit log writer: %w", err)
	}
	return nil
}

// Stop finishes the write that runs, writes everything taken so far, and ends. It
// returns an error if that fails or ctx ends first. It may then be called again.
func (j *Writer) Stop(ctx context.Context) error {
	if err := j.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the audit log writer: %w", err)
	}
	var err error
	for attempt := range stopAttempts {
		if attempt > 0 {
			wait := time.NewTimer(stopWait)
			select {
			case <-wait.C:
			case <-ctx.Done():
				wait.Stop()
			}
		}
		if err = j.Sync(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("stop the audit log writer: %w", err)
	}
	return nil
}

// lock takes writeLock. Its error is ctx's.
func (j *Writer) lock(ctx context.Context) error {
	select {
	case j.writeLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (j *Writer) unlock() { <-j.writeLock }

// Sync returns when every record taken before the call is in the store, or returns the
// error that prevents it.
func (j *Writer) Sync(ctx context.Context) error {
	if err := j.lock(ctx); err != nil {
		return err
	}
	defer j.unlock()
	return j.flush(ctx)
}

const unwritten = "writing the audit log failed; it is retried, and records beyond the memory limit are lost and counted"

// write is one step of the fast loop. Records taken meanwhile wait for at most one
// transaction that seals.
func (j *Writer) write(ctx context.Context) {
	if err := j.lock(ctx); err != nil {
		return
	}
	defer j.unlock()
	j.complain(j.flush(ctx), unwritten)
	pausing := j.pause > 0
	if pausing {
		j.pause--
	}
	for account, w := range j.open {
		switch {
		case w.Records >= audit.RunRecords:
			if pausing && w.Records < sealAnyway {
				continue
			}
			j.sealRuns(ctx, account, w.Records)
			j.pause = sealPause
		case w.Chunks >= joinFrom:
			j.complain(j.join(ctx, account), "joining chunks of the audit log failed; it is retried")
			j.catchUp(ctx)
		}
	}
}

// sealRuns seals the full blocks of an open end with the given number of records, and
// writes the records taken meanwhile.
func (j *Writer) sealRuns(ctx context.Context, accountID string, records int) {
	for ; records >= audit.RunRecords; records -= sealBlocks * audit.RunRecords {
		more, err := j.sealSome(ctx, accountID, false)
		j.complain(err, "sealing a block of the audit log failed; it is retried")
		j.catchUp(ctx)
		if err != nil || !more {
			return
		}
	}
}

// catchUp writes the records in memory if the last write was a period ago.
func (j *Writer) catchUp(ctx context.Context) {
	if j.cfg.Now().Sub(j.last) >= j.cfg.Period {
		j.complain(j.flush(ctx), unwritten)
	}
}

// complain logs an error, at most once in complainEvery.
func (j *Writer) complain(err error, message string) {
	if err == nil {
		return
	}
	if now := j.cfg.Now(); now.Sub(j.failed).Abs() >= complainEvery {
		j.failed = now
		j.cfg.Log.Error(message, "error", err, "lost", j.Lost())
	}
}

// flush writes the records in memory. The caller holds writeLock.
func (j *Writer) flush(ctx context.Context) error {
	now := j.cfg.Now()
	if back := j.last.Sub(now); back > stepBack {
		j.cfg.Log.Warn("the clock went back; sealing the audit log up to now to keep its order", "by", back.String())
		j.complain(j.sealAll(ctx), "sealing the audit log failed")
	}
	j.last = now
	j.collect()
	records := make([]*audit.Record, 0, len(j.gaps))
	for account, l := range j.gaps {
		records = append(records, audit.NewGap(account, l.records, l.first, l.last))
	}
	if len(j.unsent) == 0 && len(records) == 0 {
		return nil
	}
	err := j.cfg.Store.AppendAuditChunks(ctx, j.unsent, records)
	if fault.CodeOf(err) == fault.NotFound && len(records) > 0 {
		// An account that does not exist has no log for a gap record.
		clear(j.gaps)
		err = j.cfg.Store.AppendAuditChunks(ctx, j.unsent, nil)
	}
	if err != nil {
		return err
	}
	clear(j.gaps)
	for i := range j.unsent {
		c := &j.unsent[i]
		w := j.open[c.AccountID]
		if w == nil {
			w = &audit.Waiting{AccountID: c.AccountID}
			j.open[c.AccountID] = w
		}
		w.Chunks++
		w.Records += c.Records
	}
	clear(j.unsent)
	j.unsent = j.unsent[:0]
	j.mu.Lock()
	j.held -= j.weight
	j.mu.Unlock()
	j.weight = 0
	return nil
}

// collect encodes the taken records as chunks.
func (j *Writer) collect() {
	type part struct {
		account string
		table   *audit.Table
	}
	var parts []part
	j.mu.Lock()
	for u, in := range j.intakes {
		accountID := j.cfg.OperatorID
		if u != [16]byte{} {
			accountID = id.Format(id.Account, u)
		}
		if in.loss.records > 0 {
			if j.gaps[accountID] == nil {
				j.gaps[accountID] = &loss{}
			}
			j.gaps[accountID].add(in.loss)
			in.loss = loss{}
		}
		if in.table.Len() == 0 {
			if in.idle++; in.idle > idleAfter {
				delete(j.intakes, u)
			}
			continue
		}
		parts = append(parts, part{accountID, in.table})
		in.table, in.other = in.other, in.table
		j.weight += in.weight
		in.weight, in.idle = 0, 0
	}
	j.mu.Unlock()
	for _, p := range parts {
		p.table.Sort()
		chunks, err := p.table.Chunks(p.account)
		if err != nil {
			// Nothing that a table takes cannot be written: this is a defect.
			j.cfg.Log.Error("encoding audit records failed; they are lost", "error", err, "records", p.table.Len())
			j.mu.Lock()
			j.lost += uint64(p.table.Len())
			j.mu.Unlock()
		}
		j.unsent = append(j.unsent, chunks...)
		if p.table.Len() > keptRecords || p.table.Texts() > keptTexts {
			*p.table = audit.Table{} // free the memory of a burst
		} else {
			p.table.Reset()
		}
	}
}

// count reads the sizes of the open ends from the store.
func (j *Writer) count(ctx context.Context) error {
	waiting, err := j.cfg.Keeper.AuditWaiting(ctx)
	if err != nil {
		return err
	}
	clear(j.open)
	for i := range waiting {
		j.open[waiting[i].AccountID] = &waiting[i]
	}
	return nil
}

// join rewrites an open end of many small chunks as one chunk.
func (j *Writer) join(ctx context.Context, accountID string) error {
	o, err := j.cfg.Store.AuditOpen(ctx, accountID)
	if err != nil {
		return err
	}
	w := &audit.Waiting{AccountID: accountID, Managed: len(o.Records)}
	for _, c := range o.Chunks {
		w.Chunks, w.Records = w.Chunks+1, w.Records+c.Records
	}
	j.open[accountID] = w
	if w.Chunks < 2 || w.Records > audit.RunRecords {
		return nil
	}
	var t audit.Table
	lost, err := j.codec.Gather(&t, &audit.Open{Chunks: o.Chunks})
	if err != nil {
		return err
	}
	content, err := t.Encode(nil)
	if err != nil {
		return err
	}
	first, _ := t.Span()
	err = j.cfg.Store.JoinAuditChunks(ctx, audit.Chunk{
		ID: o.Chunks[len(o.Chunks)-1].ID, AccountID: accountID, Records: t.Len(), First: first, Content: content,
	})
	if err == nil {
		w.Chunks, w.Records = 1, t.Len()
		j.damaged(accountID, lost)
	}
	return err
}

// damaged counts and logs stored records that can no longer be read.
func (j *Writer) damaged(accountID string, lost int) {
	if lost == 0 {
		return
	}
	j.mu.Lock()
	j.lost += uint64(lost)
	j.mu.Unlock()
	j.cfg.Log.Error("a chunk of the audit log is damaged; its records are lost, and the log shows a gap", "account", accountID, "records", lost)
}
