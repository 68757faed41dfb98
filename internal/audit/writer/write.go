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
	// idleAfter is how many times in a row an account may give nothing until its
	// memory is given back: about a minute.
	idleAfter = 600
	// sealRest is how many writes follow one that sealed blocks before the next
	// seals some: the disk is waited for once for several blocks. An account of which
	// sealAnyway records are open does not wait for it, so that its open end stays
	// cheap to read.
	sealRest   = 4
	sealAnyway = 4 * audit.RunRecords
	// joinFrom is from how many chunks on an open end is written anew as one, so
	// that reading it stays cheap where records come one by one.
	joinFrom = 64
	// stepBack is how far the wall clock may go back between two writes before
	// what came before is sealed: within a block records stand by their time.
	stepBack = time.Second
	// complainEvery is how often a store that fails is logged.
	complainEvery = time.Minute
	stopAttempts  = 3
	// keptRecords and keptTexts, in bytes, are up to how much a table keeps its
	// memory for the next records.
	keptRecords = 16 << 10
	keptTexts   = 1 << 20
	stopWait    = 50 * time.Millisecond
)

// Start begins to write. It fails if the store cannot be read.
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
			service.Every(ctx, upkeepPeriod, j.maintain)
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

// lock takes the turn.
func (j *Writer) lock(ctx context.Context) error {
	select {
	case j.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (j *Writer) unlock() { <-j.turn }

// Sync returns when everything that was taken before the call is in the store,
// or with the reason why it is not.
func (j *Writer) Sync(ctx context.Context) error {
	if err := j.lock(ctx); err != nil {
		return err
	}
	defer j.unlock()
	return j.flush(ctx)
}

const unwritten = "the audit log could not be written; it is tried again, and what memory cannot hold is lost and counted"

// write is one step of the fast loop. What is taken meanwhile waits for one
// transaction that seals at most.
func (j *Writer) write(ctx context.Context) {
	if err := j.lock(ctx); err != nil {
		return
	}
	defer j.unlock()
	j.complain(j.flush(ctx), unwritten)
	resting := j.rest > 0
	if resting {
		j.rest--
	}
	for account, w := range j.open {
		switch {
		case w.Records >= audit.RunRecords:
			if resting && w.Records < sealAnyway {
				continue
			}
			j.sealRuns(ctx, account, w.Records)
			j.rest = sealRest
		case w.Chunks >= joinFrom:
			j.complain(j.join(ctx, account), "the open end of the audit log could not be written anew; it is tried again")
			j.catchUp(ctx)
		}
	}
}

// sealRuns seals the whole blocks of what is open of an account's log, which is so
// many records, and writes what is taken meanwhile.
func (j *Writer) sealRuns(ctx context.Context, accountID string, records int) {
	for ; records >= audit.RunRecords; records -= sealBlocks * audit.RunRecords {
		more, err := j.sealSome(ctx, accountID, false)
		j.complain(err, "a block of the audit log could not be sealed; it is tried again")
		j.catchUp(ctx)
		if err != nil || !more {
			return
		}
	}
}

// catchUp writes what is in memory if the last time was a period ago.
func (j *Writer) catchUp(ctx context.Context) {
	if j.cfg.Now().Sub(j.last) >= j.cfg.Period {
		j.complain(j.flush(ctx), unwritten)
	}
}

// complain logs a failure, and not the same every time.
func (j *Writer) complain(err error, message string) {
	if err == nil {
		return
	}
	if now := j.cfg.Now(); now.Sub(j.failed).Abs() >= complainEvery {
		j.failed = now
		j.cfg.Log.Error(message, "error", err, "lost", j.Lost())
	}
}

// flush writes what is in memory.
func (j *Writer) flush(ctx context.Context) error {
	now := j.cfg.Now()
	if back := j.last.Sub(now); back > stepBack {
		j.cfg.Log.Warn("the clock went back: the audit log up to here is sealed, so that its order holds", "by", back.String())
		j.complain(j.sealAll(ctx), "the audit log could not be sealed")
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
		// An account that does not exist has no log to tell of the gap.
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

// collect makes chunks of what was taken.
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
			j.cfg.Log.Error("audit records could not be packed and are lost", "error", err, "records", p.table.Len())
			j.mu.Lock()
			j.lost += uint64(p.table.Len())
			j.mu.Unlock()
		}
		j.unsent = append(j.unsent, chunks...)
		if p.table.Len() > keptRecords || p.table.Texts() > keptTexts {
			*p.table = audit.Table{} // a burst's memory is not kept
		} else {
			p.table.Reset()
		}
	}
}

// count learns what is open from the store.
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

// join writes an open end of many small chunks anew as one.
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

// damaged counts records that were in the store and cannot be read any more.
func (j *Writer) damaged(accountID string, lost int) {
	if lost == 0 {
		return
	}
	j.mu.Lock()
	j.lost += uint64(lost)
	j.mu.Unlock()
	j.cfg.Log.Error("a part of the open end of the audit log is damaged: its records are lost, and the log shows a gap", "account", accountID, "records", lost)
}
