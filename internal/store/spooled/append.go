package spooled

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/spool"
	"github.com/keygate/keygate/internal/traffic"
)

// AppendAuditChunks implements writer.Store. For a batch that is in the spool, the error is
// accesslog.ErrSpooled.
func (s *Store) AppendAuditChunks(ctx context.Context, id accesslog.BatchID, chunks []audit.Chunk, records []*audit.Record) error {
	spooled, err := s.append(ctx, Audit, func() (*batch, error) {
		b := &batch{ID: id, Chunks: chunks}
		if len(records) > 0 {
			var err error
			if b.Gaps, err = json.Marshal(records); err != nil {
				return nil, fmt.Errorf("encode gap records: %w", err)
			}
		}
		return b, nil
	}, func() error { return s.Engine.AppendAuditChunks(ctx, id, chunks, records) })
	if spooled {
		return accesslog.ErrSpooled
	}
	return err
}

// AppendTraffic implements traffic.Store. A batch in the spool counts as stored.
func (s *Store) AppendTraffic(ctx context.Context, id accesslog.BatchID, chunks []traffic.Chunk) error {
	_, err := s.append(ctx, Traffic, func() (*batch, error) { return &batch{ID: id, Traffic: chunks}, nil },
		func() error { return s.Engine.AppendTraffic(ctx, id, chunks) })
	return err
}

// AppendRequests implements requestlog.Store. A batch in the spool counts as stored.
func (s *Store) AppendRequests(ctx context.Context, id accesslog.BatchID, records []requestlog.Record, left []requestlog.LeftOut) error {
	_, err := s.append(ctx, Requests, func() (*batch, error) { return &batch{ID: id, Requests: records, LeftOut: left}, nil },
		func() error { return s.Engine.AppendRequests(ctx, id, records, left) })
	return err
}

// AppendEvents implements detect.Store. Events in the spool count as stored.
func (s *Store) AppendEvents(ctx context.Context, events []event.Event) error {
	_, err := s.append(ctx, Events, func() (*batch, error) { return &batch{Events: events}, nil },
		func() error { return s.Engine.AppendEvents(ctx, events) })
	return err
}

// append writes a batch to the store with direct, or puts what content returns into the spool if batches
// of its kind are waiting there or the store does not take it.
func (s *Store) append(ctx context.Context, k Kind, content func() (*batch, error), direct func() error) (spooled bool, err error) {
	q := s.queues[k]
	if q.Empty() && !s.shelved.Load() {
		if err = direct(); err == nil || isFinal(err) || errors.Is(ctx.Err(), context.Canceled) {
			return false, err
		}
		s.away.Store(true)
	}
	b, encodeErr := content()
	if encodeErr != nil {
		return false, encodeErr
	}
	payload, encodeErr := s.codec.encode(b)
	if encodeErr != nil {
		return false, encodeErr
	}
	spoolErr := q.Append(spool.Frame{Records: b.records(), At: s.cfg.Now(), Payload: payload})
	if spoolErr == nil {
		s.begun(k, err)
		return true, nil
	}
	s.refused(k, spoolErr)
	if err == nil {
		err = &fault.Error{Code: fault.Unavailable, Message: "the records cannot be stored now; try again", Err: spoolErr}
	}
	return false, err
}

// isFinal reports whether the store would not take the same batch later either.
func isFinal(err error) bool {
	switch fault.CodeOf(err) {
	case fault.NotFound, fault.Conflict, fault.ValidationFailed:
		return true
	default:
		return false
	}
}

// begun logs that batches go into the spool: once each time until the spool is empty again.
func (s *Store) begun(k Kind, err error) {
	if s.filling.CompareAndSwap(false, true) {
		s.cfg.Log.Warn("the database takes no records; they are kept in the spool and written later", "first", k.String(), "error", err)
	}
}

// refused logs that the spool did not take a batch: once for each kind until the spool is empty again.
func (s *Store) refused(k Kind, err error) {
	if s.full[k].CompareAndSwap(false, true) {
		s.cfg.Log.Error("the spool takes no more records; they are kept in memory, and further ones are lost and counted",
			"kind", k.String(), "error", err, "bytes", s.queues[k].Bytes(), "max_bytes", k.share(s.cfg.MaxBytes), "since", s.cfg.Now().UTC().Format(time.RFC3339))
	}
}
