package writer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/keygate/keygate/internal/audit"
)

// sealBlocks is how many blocks one transaction seals, so that a change waits
// little behind it.
const sealBlocks = 8

// sealTexts is how many bytes of texts a block has at most, but for one record
// more: long paths and differences fill a block early.
const sealTexts = 4 << 20

// seal makes blocks of what is open of an account's log: of everything, or of
// whole blocks alone.
func (j *Writer) seal(ctx context.Context, accountID string, everything bool) error {
	for {
		if more, err := j.sealSome(ctx, accountID, everything); err != nil || !more {
			return err
		}
	}
}

// sealSome is one transaction of seal; more tells that there is more to be sealed.
func (j *Writer) sealSome(ctx context.Context, accountID string, everything bool) (more bool, err error) {
	o, err := j.cfg.Store.AuditOpen(ctx, accountID)
	if err != nil {
		return false, err
	}
	s := sealing{codec: j.codec, table: &j.sealing, open: o, everything: everything, now: j.cfg.Now(), managed: o.Records}
	if more, err = s.run(accountID); err != nil {
		return false, fmt.Errorf("seal the audit log of %s: %w", accountID, err)
	}
	if len(s.seal.Blocks) > 0 {
		if err := j.cfg.Store.SealAudit(ctx, &s.seal); err != nil {
			return false, err
		}
		j.damaged(accountID, s.lost)
	}
	left := &audit.Waiting{AccountID: accountID, Managed: len(s.managed)}
	for _, c := range o.Chunks[s.chunks:] {
		left.Chunks, left.Records = left.Chunks+1, left.Records+c.Records
	}
	j.open[accountID] = left
	if left.Chunks == 0 {
		delete(j.open, accountID)
	}
	return more, nil
}

// sealing is what one transaction of seal does.
type sealing struct {
	codec      *audit.Codec
	table      *audit.Table // its memory is used for one block after the other
	open       *audit.Open
	everything bool
	now        time.Time

	chunks  int            // that are in blocks
	managed []audit.Record // that are in none, the oldest last
	lost    int            // records of damaged chunks that are in blocks as gaps
	seal    audit.Seal
}

// run makes the blocks; more tells that there is more to be made.
func (s *sealing) run(accountID string) (more bool, err error) {
	s.seal.AccountID = accountID
	for s.chunks < len(s.open.Chunks) {
		if len(s.seal.Blocks) == sealBlocks {
			return true, nil
		}
		t, whole, lost, err := s.chunkRun()
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
		s.seal.Through = s.open.Chunks[s.chunks-1].ID
		s.lost += lost
	}
	// Management records with no others beside them.
	for len(s.managed) > 0 && (s.everything || len(s.managed) >= audit.MaxRecords) {
		if len(s.seal.Blocks) == sealBlocks {
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
	return false, nil
}

// chunkRun gathers chunks for one block, in the order in which they came; whole
// is false if more could still come to it, and lost is how many of their records
// cannot be read.
func (s *sealing) chunkRun() (t *audit.Table, whole bool, lost int, err error) {
	t, from := s.table, s.chunks
	t.Reset()
	for ; s.chunks < len(s.open.Chunks); s.chunks++ {
		c := &s.open.Chunks[s.chunks]
		if t.Len() > 0 && (t.Len()+c.Records > audit.RunRecords || t.Texts() > sealTexts) {
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

// addManaged moves management records up to the time last to the table, as many
// as it has room for.
func (s *sealing) addManaged(t *audit.Table, last time.Time) error {
	for n := len(s.managed) - 1; n >= 0 && t.Len() < audit.MaxRecords && t.Texts() <= 2*sealTexts; n-- {
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

// block closes a block over the table.
func (s *sealing) block(t *audit.Table) error {
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
	runtime.Gosched() // it took a millisecond, for which requests of this core waited
	return nil
}

// Seal writes everything that was taken before the call and seals it, however
// little it is: after it the heads vouch for all records.
func (j *Writer) Seal(ctx context.Context) error {
	if err := j.lock(ctx); err != nil {
		return err
	}
	defer j.unlock()
	if err := j.flush(ctx); err != nil {
		return err
	}
	return j.sealAll(ctx)
}

// sealAll seals everything that is open.
func (j *Writer) sealAll(ctx context.Context) error {
	if err := j.count(ctx); err != nil {
		return err
	}
	var errs []error
	for account := range j.open {
		errs = append(errs, j.seal(ctx, account, true))
	}
	return errors.Join(errs...)
}

// maintain is one step of the slow loop. It may be left in the middle.
func (j *Writer) maintain(ctx context.Context) {
	if err := j.Maintain(ctx); err != nil && ctx.Err() == nil {
		j.cfg.Log.Error("the audit log could not be kept up; it is tried again", "error", err)
	}
}

// Maintain does at once what is else done every ten seconds: it seals what is full
// or old, removes what is too old or too much, and logs heads. Records are written
// between its steps.
func (j *Writer) Maintain(ctx context.Context) error {
	j.keeping.Lock()
	defer j.keeping.Unlock()
	now := j.cfg.Now()
	due, err := j.due(ctx, now)
	if err != nil {
		return err
	}
	var errs []error
	for account, old := range due {
		for more := true; more; {
			if err := j.lock(ctx); err != nil {
				return err
			}
			more, err = j.sealSome(ctx, account, old)
			errs = append(errs, err)
			j.unlock()
		}
	}
	if now.Sub(j.trimmed).Abs() >= trimPeriod {
		j.trimmed = now
		errs = append(errs, j.trim(ctx, now))
	}
	if now.Sub(j.told).Abs() >= headPeriod {
		j.told = now
		errs = append(errs, j.logHeads(ctx))
	}
	return errors.Join(errs...)
}

// due returns the accounts of whose log something is to be sealed, and whether
// that is for its age.
func (j *Writer) due(ctx context.Context, now time.Time) (map[string]bool, error) {
	if err := j.lock(ctx); err != nil {
		return nil, err
	}
	defer j.unlock()
	if err := j.count(ctx); err != nil {
		return nil, err
	}
	due := map[string]bool{}
	for account, w := range j.open {
		// A record from the future tells of a clock that was set back.
		old := now.Sub(w.Oldest).Abs() >= sealAfter
		if old || w.Records >= audit.RunRecords || w.Managed >= audit.MaxRecords {
			due[account] = old
		}
	}
	return due, nil
}

// trim removes what is too old or too much.
func (j *Writer) trim(ctx context.Context, now time.Time) error {
	early := map[string]*audit.Trimmed{}
	defer func() {
		for _, t := range early {
			j.cfg.Log.Warn("the audit log has outgrown --audit-max-bytes: its oldest records were removed before their time",
				"account", t.AccountID, "records", t.Records, "up_to", t.Last, "max_bytes", j.cfg.MaxBytes)
		}
	}()
	for {
		t, err := j.cfg.Keeper.TrimAudit(ctx, now, j.cfg.MaxBytes)
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

// logHeads logs the end of each chain that has grown: who keeps the log
// elsewhere can prove by it that nothing was changed.
func (j *Writer) logHeads(ctx context.Context) error {
	chains, err := j.cfg.Keeper.AuditChains(ctx)
	if err != nil {
		return err
	}
	for _, c := range chains {
		if j.heads[c.AccountID] != c.Head.Number {
			j.heads[c.AccountID] = c.Head.Number
			j.cfg.Log.Info("head of the audit log", "account", c.AccountID, "block", c.Head.Number,
				"digest", hex.EncodeToString(c.Head.Digest[:]), "sealed_at", c.Head.Time)
		}
	}
	return nil
}
