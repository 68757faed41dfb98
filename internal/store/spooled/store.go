package spooled

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/spool"
	"github.com/keygate/keygate/internal/store"
)

// retryPeriod is the time between two attempts to write the spool to the store.
const retryPeriod = time.Second

// giveUpAfter is how long a batch is tried that the store rejects for an unknown reason, while others wait
// behind it. If the store cannot be reached, the wait has no bound.
const giveUpAfter = 10 * time.Minute

// Config configures a Store. Store, Dir, Installation, MaxBytes and Lost are required.
type Config struct {
	Store store.Engine
	Dir   string // directory of the spool, which nothing else uses
	// Installation identifies what the store belongs to. The spool of another installation in the
	// same directory is left as it is.
	Installation string
	MaxBytes     int64 // maximum size of the spool in bytes
	// Lost is called for records that were in the spool and are lost, because a part of it was
	// damaged or the store will never take them. at is when they were put there, or zero if that is
	// unknown.
	Lost func(k Kind, records int, at time.Time)
	Now  func() time.Time // nil means time.Now
	Log  *slog.Logger     // nil discards
}

// Store is a store.Engine with a spool. It is safe for concurrent use.
type Store struct {
	store.Engine
	cfg    Config
	dir    string
	codec  *codec
	queues [kinds]*spool.Queue

	filling atomic.Bool        // it was logged that the spool is in use
	full    [kinds]atomic.Bool // it was logged that a queue takes no more
	away    atomic.Bool        // the store did not take the batch that was last tried
	shelved atomic.Bool        // Shelve was called

	draining chan struct{}    // a mutex, as a channel so that a wait for it can end with a context
	failing  [kinds]time.Time // when the oldest batch of a queue first failed for an unknown reason; guarded by draining

	group service.Group
}

// New returns a Store with what an earlier process has left in the spool.
func New(cfg Config) (*Store, error) {
	if cfg.Store == nil || cfg.Dir == "" || cfg.Installation == "" || cfg.MaxBytes <= 0 || cfg.Lost == nil {
		return nil, errors.New("store/spooled: Config.Store, Config.Dir, Config.Installation, Config.MaxBytes and Config.Lost are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	codec, err := newCodec()
	if err != nil {
		return nil, err
	}
	s := &Store{Engine: cfg.Store, cfg: cfg, dir: filepath.Join(cfg.Dir, cfg.Installation), codec: codec, draining: make(chan struct{}, 1)}
	for k := range kinds {
		if s.queues[k], err = spool.Open(spool.Config{Dir: s.dir, Name: k.String(), MaxBytes: k.share(cfg.MaxBytes)}); err != nil {
			return nil, err
		}
	}
	s.warnOthers()
	if n := s.Bytes(); n > 0 {
		s.filling.Store(true)
		cfg.Log.Info("writing records that an earlier process has left in the spool", "bytes", n)
	}
	return s, nil
}

// warnOthers logs that there are records of other installations.
func (s *Store) warnOthers() {
	entries, _ := os.ReadDir(s.cfg.Dir)
	for _, e := range entries {
		if e.Name() != s.cfg.Installation {
			s.cfg.Log.Warn("the spool has records of another database: start the server with that database once to store them, or remove them",
				"path", filepath.Join(s.cfg.Dir, e.Name()))
		}
	}
}

// Bytes returns the size of the spool in bytes.
func (s *Store) Bytes() (n int64) {
	for _, q := range s.queues {
		n += q.Bytes()
	}
	return n
}

// Start begins to write the spool to the store, until Stop.
func (s *Store) Start(context.Context) error {
	err := s.group.Start(func(ctx context.Context) {
		s.drainAndFlush(ctx)
		service.Every(ctx, retryPeriod, s.drainAndFlush)
	})
	if err != nil {
		return fmt.Errorf("start the spool: %w", err)
	}
	return nil
}

// Shelve makes each further batch go into the spool first, and from there to the store, as if the store did not
// take it. A process that is about to end must not keep records in memory while it waits for the store.
func (s *Store) Shelve() { s.shelved.Store(true) }

// Flush returns when all that is in the spool is on the disk.
func (s *Store) Flush() error {
	var errs []error
	for _, q := range s.queues {
		errs = append(errs, q.Flush())
	}
	return errors.Join(errs...)
}

// Stop tries once more to write the spool to the store, and ends. What the store does not take stays in
// the spool, which is not an error.
func (s *Store) Stop(ctx context.Context) error {
	if err := s.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the spool: %w", err)
	}
	if err := s.Sync(ctx); err != nil {
		s.cfg.Log.Warn("records stay in the spool; the next start of the server writes them", "bytes", s.Bytes(), "error", err)
	}
	var errs []error
	for _, q := range s.queues {
		errs = append(errs, q.Close())
	}
	_ = os.Remove(s.dir) // fails unless it is empty, as the next
	_ = os.Remove(s.cfg.Dir)
	return errors.Join(errs...)
}

// drainAndFlush writes the spool to the store, as far as the store takes it, and syncs the rest to the disk.
func (s *Store) drainAndFlush(ctx context.Context) {
	_ = s.Sync(ctx) // tried again; the reason was logged
	if err := s.Flush(); err != nil {
		s.cfg.Log.Error("syncing the spool failed; a power failure may lose records", "error", err)
	}
}

// Sync returns when the spool is empty, or returns the error for which the store does not take a batch.
func (s *Store) Sync(ctx context.Context) error {
	if s.empty() {
		return nil
	}
	select {
	case s.draining <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for the spool: %w", ctx.Err())
	}
	defer func() { <-s.draining }()
	if err := s.drain(ctx); err != nil {
		if ctx.Err() == nil { // else it is the caller who waits no longer
			s.away.Store(true)
		}
		return fmt.Errorf("write the spool to the store: %w", err)
	}
	s.away.Store(false)
	if s.empty() && s.filling.CompareAndSwap(true, false) {
		for k := range s.full {
			s.full[k].Store(false)
		}
		s.cfg.Log.Info("all records of the spool are stored")
	}
	return nil
}

func (s *Store) empty() bool {
	for _, q := range s.queues {
		if !q.Empty() {
			return false
		}
	}
	return true
}

// drain writes batches of all kinds in turn, each kind until it has none left or the store does not take
// its next batch. No kind delays another. The caller holds draining.
func (s *Store) drain(ctx context.Context) error {
	var failed [kinds]error
	for more := true; more; {
		more = false
		for k := range kinds {
			if failed[k] != nil {
				continue
			}
			var wrote bool
			wrote, failed[k] = s.drainOne(ctx, k)
			more = more || wrote
		}
	}
	return errors.Join(failed[:]...)
}

// drainOne writes the oldest batch of a kind to the store, and removes it from the spool. wrote is false
// if there was none.
func (s *Store) drainOne(ctx context.Context, k Kind) (wrote bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	q := s.queues[k]
	frame, err := q.Next()
	var damage *spool.DamageError
	switch {
	case errors.As(err, &damage):
		s.lose(k, damage.Records, damage.At, err)
		return true, nil
	case err != nil:
		return false, err
	case frame == nil:
		return false, nil
	}
	b, err := s.codec.decode(frame.Payload)
	if err == nil {
		err = b.write(ctx, k, s.Engine)
	} else {
		err = fault.New(fault.ValidationFailed, "%v", err)
	}
	if err != nil && !s.givesUp(ctx, k, err) {
		return false, err
	}
	if err != nil {
		s.lose(k, frame.Records, frame.At, err)
	}
	s.failing[k] = time.Time{}
	q.Drop()
	return true, nil
}

// givesUp reports whether the oldest batch of a kind, which failed with err, is not tried again.
func (s *Store) givesUp(ctx context.Context, k Kind, err error) bool {
	switch {
	case isFinal(err):
		return true
	case fault.CodeOf(err) == fault.Unavailable || ctx.Err() != nil:
		s.failing[k] = time.Time{} // the time counts only while the store responds
		return false
	case s.failing[k].IsZero():
		s.failing[k] = s.cfg.Now()
		return false
	default:
		return s.cfg.Now().Sub(s.failing[k]) >= giveUpAfter
	}
}

// lose reports records that are lost.
func (s *Store) lose(k Kind, records int, at time.Time, err error) {
	s.cfg.Log.Error("records in the spool are lost", "kind", k.String(), "records", records, "error", err)
	s.cfg.Lost(k, records, at)
}

// AuditWaiting implements writer.Keeper.
func (s *Store) AuditWaiting(ctx context.Context) ([]audit.Waiting, error) {
	if err := s.auditAway(); err != nil {
		return nil, err
	}
	return s.Engine.AuditWaiting(ctx)
}

// AuditOpen implements writer.Store.
func (s *Store) AuditOpen(ctx context.Context, accountID string) (*audit.Open, error) {
	if err := s.auditAway(); err != nil {
		return nil, err
	}
	return s.Engine.AuditOpen(ctx, accountID)
}

// auditAway returns an error while audit records are waiting and the store takes none. The writer of the
// audit log holds its lock while it seals, and moves no records to the spool meanwhile, so it must not
// wait for a store that does not respond.
func (s *Store) auditAway() error {
	if s.away.Load() && !s.queues[Audit].Empty() {
		return fault.New(fault.Unavailable, "the database takes no records; try again")
	}
	return nil
}
