package writer

import (
	"context"
	"fmt"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/requestlog"
)

// Sync returns when every request taken before the call is in the store.
func (r *Writer) Sync(ctx context.Context) error {
	select {
	case r.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for the request log writer: %w", ctx.Err())
	}
	defer func() { <-r.writing }()
	if err := r.write(ctx); err != nil { // left by an earlier call that failed
		return err
	}
	r.collect()
	return r.write(ctx)
}

// write writes the pending records and counts. After a failed call, the next call begins with the
// same batch, because a repeated batch must have the same content.
func (r *Writer) write(ctx context.Context) error {
	for len(r.pending) > 0 || len(r.unsentCounts) > 0 {
		records, left := r.pending[:min(len(r.pending), batch)], r.unsentCounts[:min(len(r.unsentCounts), batch)]
		next, _ := r.batches.Open()
		if err := r.cfg.Store.AppendRequests(ctx, next, records, left); err != nil {
			return fmt.Errorf("write the request log: %w", err)
		}
		r.batches.Close()
		r.tails.publish(records, left)
		r.keepBound(ctx, records)
		clear(records)
		r.pending, r.unsentCounts = r.pending[len(records):], r.unsentCounts[len(left):]
	}
	r.pending, r.unsentCounts = nil, nil
	return nil
}

// secondsKept is the number of seconds in kept at which old ones are removed.
const secondsKept = 1 << 10

// collect moves the taken records and counts to pending.
func (r *Writer) collect() {
	now := r.cfg.Now().Unix()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending, r.records, r.texts = r.records, nil, 0
	for at, n := range r.left {
		account := r.cfg.OperatorID
		if at.account != [16]byte{} {
			account = id.Format(id.Account, at.account)
		}
		r.unsentCounts = append(r.unsentCounts, requestlog.LeftOut{AccountID: account, Second: at.at, Count: n})
	}
	clear(r.left)
	if len(r.kept) > secondsKept {
		for at := range r.kept {
			if age := now - at.at; age > 120 || age < -120 {
				delete(r.kept, at)
			}
		}
	}
}

// Requests returns up to limit requests of an account that f matches, the newest first,
// after the request with the identifier after, or from the newest if after is "". Call
// Sync before.
func (r *Writer) Requests(ctx context.Context, accountID string, f requestlog.Filter, limit int, after string) ([]requestlog.Request, error) {
	if oldest := r.cfg.Now().Add(-requestlog.Keep); f.Since.Before(oldest) {
		f.Since = oldest
	}
	records, err := r.cfg.Store.RequestRecords(ctx, accountID, f, limit, after)
	if err != nil {
		return nil, err
	}
	list := make([]requestlog.Request, len(records))
	for i := range records {
		list[i] = records[i].Request()
	}
	return list, nil
}

// Request returns one request. Its error is fault.NotFound if there is none.
func (r *Writer) Request(ctx context.Context, accountID, requestID string) (*requestlog.Request, error) {
	record, err := r.cfg.Store.RequestRecord(ctx, accountID, requestID)
	if err != nil {
		return nil, err
	}
	if record.Time.Before(r.cfg.Now().Add(-requestlog.Keep)) {
		return nil, fault.Missing("request")
	}
	request := record.Request()
	return &request, nil
}
