package writer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
)

// sealBlocks is the maximum number of blocks that one transaction seals, so that changes
// wait only briefly for it.
const sealBlocks = 8

// sealManaged is the maximum number of management records that one transaction seals. Each is a row to delete, and
// changes of all accounts wait meanwhile.
const sealManaged = 1500

// sealTexts is the size of texts, in bytes, at which a block is full, because long paths and diffs
// fill a block early.
const sealTexts = 4 << 20

// seal seals the open end of an account's log: everything, or only full blocks.
func (w *Writer) seal(ctx context.Context, accountID string, everything bool) error {
	for {
		if more, err := w.sealSome(ctx, accountID, everything); err != nil || !more {
			return err
		}
	}
}

// sealSome is one transaction of seal. more says that there is more to seal. If another node seals
// the same records meanwhile, sealSome seals the rest.
func (w *Writer) sealSome(ctx context.Context, accountID string, everything bool) (more bool, err error) {
	for range sealTries {
		if more, err = w.trySeal(ctx, accountID, everything); fault.CodeOf(err) != fault.Conflict {
			break
		}
	}
	return more, err
}

// sealTries is how often a sealing transaction is tried while other nodes seal the same log.
const sealTries = 10

func (w *Writer) trySeal(ctx context.Context, accountID string, everything bool) (more bool, err error) {
	o, err := w.cfg.Store.AuditOpen(ctx, accountID)
	if err != nil {
		return false, err
	}
	s := sealing{codec: w.codec, table: &w.sealing, open: o, everything: everything, now: w.cfg.Now(), managed: o.Records}
	if more, err = s.run(accountID); err != nil {
		return false, fmt.Errorf("seal the audit log of %s: %w", accountID, err)
	}
	if len(s.seal.Blocks) > 0 {
		for i := range o.Chunks[:s.chunks] {
			s.seal.Chunks = append(s.seal.Chunks, o.Chunks[i].ID)
		}
		if err := w.cfg.Store.SealAudit(ctx, &s.seal); err != nil {
			return false, err
		}
		w.damaged(accountID, s.lost)
	}
	left := &audit.Waiting{AccountID: accountID, Managed: len(s.managed)}
	for _, c := range o.Chunks[s.chunks:] {
		left.Chunks, left.Records = left.Chunks+1, left.Records+c.Records
	}
	w.open[accountID] = left
	if left.Chunks == 0 {
		delete(w.open, accountID)
	}
	return more, nil
}

// sealing is the state of one transaction of seal.
type sealing struct {
	codec      *audit.Codec
	table      *audit.Table // reused for each block
	open       *audit.Open
	everything bool
	now        time.Time

	chunks  int            // number of chunks in blocks
	managed []audit.Record // management records in no block yet, the oldest last
	lost    int            // records of damaged chunks, for which blocks have gap records
	seal    audit.Seal
}

// run makes the blocks. more is whether there are more to make.
func (s *sealing) run(accountID string) (more bool, err error) {
	s.seal.AccountID = accountID
	for s.chunks < len(s.open.Chunks) {
		if s.full() {
			return true, nil
		}
		t, whole, lost, err := s.gatherBlock()
		if err != nil {
			return false, err
		}
		if !whole && !s.everything {
			break
		}
		_, last := t.Span()
		if s.everything && s.chunks == len(s.open.Chunks) {
			last = time.Unix(1<<40, 0)
		}
		if err := s.addManaged(t, last); err != nil {
			return false, err
		}
		if err := s.block(t); err != nil {
			return false, err
		}
		s.lost += lost
	}
	// Management records after the last chunk.
	for len(s.managed) > 0 && (s.everything || len(s.managed) >= audit.MaxRecords) {
		if s.full() {
			return true, nil
		}
		s.table.Reset()
		if err := s.addManaged(s.table, time.Unix(1<<40, 0)); err != nil {
			return false, err
		}
		if err := s.block(s.table); err != nil {
			return false, err
		}
	}
	return s.everything && s.open.More, nil
}

// full reports whether the transaction has as much as it may.
func (s *sealing) full() bool {
	return len(s.seal.Blocks) == sealBlocks || len(s.seal.Managed) == sealManaged
}

// gatherBlock gathers chunks for one block, in order. whole says that the block is full; lost is
// the number of records in damaged chunks.
func (s *sealing) gatherBlock() (t *audit.Table, whole bool, lost int, err error) {
	t, from := s.table, s.chunks
	t.Reset()
	for ; s.chunks < len(s.open.Chunks); s.chunks++ {
		c := &s.open.Chunks[s.chunks]
		isFull := func() bool { return t.Len() > 0 && (t.Len()+c.Records > audit.RunRecords || t.Texts() > sealTexts) }
		if isFull() && (t.Merge() == 0 || isFull()) {
			return t, true, lost, nil
		}
		n, err := s.codec.AddChunk(t, c)
		if err != nil {
			return nil, false, 0, err
		}
		lost += n
	}
	if whole = t.Len() == audit.RunRecords || t.Texts() > sealTexts; !whole && !s.everything {
		s.chunks = from
	}
	return t, whole, lost, nil
}

// addManaged moves management records up to the time last to the table, as far as it and the transaction have
// room.
func (s *sealing) addManaged(t *audit.Table, last time.Time) error {
	for n := len(s.managed) - 1; n >= 0 && t.Len() < audit.MaxRecords && t.Texts() <= 2*sealTexts && len(s.seal.Managed) < sealManaged; n-- {
		r := &s.managed[n]
		if r.Time.After(last) {
			return nil
		}
		if err := t.Add(r); err != nil {
			return err
		}
		s.seal.Managed = append(s.seal.Managed, r.Seq)
		s.managed = s.managed[:n]
	}
	return nil
}

// block makes a block of the table.
func (s *sealing) block(t *audit.Table) error {
	t.Merge()
	t.Sort()
	content, err := t.Encode(s.codec)
	if err != nil {
		return err
	}
	head := s.open.Chain.Head
	if n := len(s.seal.Blocks); n > 0 {
		head = s.seal.Blocks[n-1].End()
	}
	first, last := t.Span()
	b := &audit.Block{
		AccountID: s.seal.AccountID, Number: head.Number + 1, Previous: head.Digest, First: first, Last: last,
		Sealed: s.now.UTC().Truncate(time.Microsecond), Records: t.Len(), Content: content,
	}
	b.Seal()
	s.seal.Blocks = append(s.seal.Blocks, b)
	s.seal.Summaries = append(s.seal.Summaries, t.Summary(b.Number))
	runtime.Gosched() // let requests run that wait for this core
	return nil
}

// Seal writes and seals every record taken before the call, so that the heads of the
// chains cover all of them.
func (w *Writer) Seal(ctx context.Context) error {
	if err := w.lock(ctx); err != nil {
		return err
	}
	defer w.unlock()
	if err := w.flush(ctx); err != nil {
		return err
	}
	return w.sealAll(ctx)
}

// sealAll seals the open ends of all accounts.
func (w *Writer) sealAll(ctx context.Context) error {
	if err := w.count(ctx); err != nil {
		return err
	}
	var errs []error
	for account := range w.open {
		errs = append(errs, w.seal(ctx, account, true))
	}
	return errors.Join(errs...)
}

// maintain is one step of the slow loop. It can be cancelled at any point.
func (w *Writer) maintain(ctx context.Context) {
	if err := w.Maintain(ctx); err != nil && ctx.Err() == nil {
		w.cfg.Log.Error("maintenance of the audit log failed; it is retried", "error", err)
	}
}

// Maintain does the maintenance that otherwise runs every ten seconds: it seals full and
// old open ends, removes records beyond their retention or the maximum size, and logs
// heads. Records are written between its steps.
func (w *Writer) Maintain(ctx context.Context) error {
	w.maintaining.Lock()
	defer w.maintaining.Unlock()
	now := w.cfg.Now()
	due, err := w.due(ctx, now)
	if err != nil {
		return err
	}
	var errs []error
	for account, everything := range due {
		for more := true; more; {
			if err := w.lock(ctx); err != nil {
				return err
			}
			more, err = w.sealSome(ctx, account, everything)
			errs = append(errs, err)
			w.unlock()
		}
	}
	if now.Sub(w.trimmed).Abs() >= trimPeriod {
		w.trimmed = now
		errs = append(errs, w.trim(ctx, w.cfg.Retention()))
	}
	if now.Sub(w.headsLogged).Abs() >= headPeriod {
		w.headsLogged = now
		errs = append(errs, w.logHeads(ctx))
	}
	return errors.Join(errs...)
}

// due returns the accounts with something to seal, and for each whether everything in its open end is to be
// sealed, because of its age or of its management records.
func (w *Writer) due(ctx context.Context, now time.Time) (map[string]bool, error) {
	if err := w.lock(ctx); err != nil {
		return nil, err
	}
	defer w.unlock()
	if err := w.count(ctx); err != nil {
		return nil, err
	}
	due := map[string]bool{}
	for account, waiting := range w.open {
		// A record from the future means that the clock was set back.
		everything := now.Sub(waiting.Oldest).Abs() >= audit.SealAfter || waiting.Managed >= audit.MaxRecords || waiting.DiffBytes >= sealTexts
		if everything || waiting.Records >= audit.RunRecords {
			due[account] = everything
		}
	}
	return due, nil
}

// trim removes records beyond their retention at now, or beyond the maximum size.
func (w *Writer) trim(ctx context.Context, now time.Time) error {
	early := map[string]*audit.Trimmed{}
	defer func() {
		for _, t := range early {
			w.cfg.Log.Warn("the audit log is larger than --audit-max-bytes; its oldest records were removed early",
				"account", t.AccountID, "records", t.Records, "up_to", t.Last, "max_bytes", w.cfg.MaxBytes)
		}
	}()
	for {
		t, err := w.cfg.Keeper.TrimAudit(ctx, now, w.cfg.MaxBytes)
		if err != nil || t == nil {
			return err
		}
		if !t.Early {
			continue
		}
		if all := early[t.AccountID]; all != nil {
			t.Blocks, t.Records = t.Blocks+all.Blocks, t.Records+all.Records
		}
		early[t.AccountID] = t
	}
}

// logHeads logs the head of each chain that has grown. If the log of the server is kept elsewhere,
// the heads prove that nothing was changed.
func (w *Writer) logHeads(ctx context.Context) error {
	chains, err := w.cfg.Keeper.AuditChains(ctx)
	if err != nil {
		return err
	}
	for _, c := range chains {
		if w.heads[c.AccountID] != c.Head.Number {
			w.heads[c.AccountID] = c.Head.Number
			w.cfg.Log.Info("head of the audit log", "account", c.AccountID, "block", c.Head.Number,
				"digest", hex.EncodeToString(c.Head.Digest[:]), "sealed_at", c.Head.Time)
		}
	}
	return nil
}
