package control

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// responsesKept is how long the answer to a call with an Idempotency-Key is
// given again (contract, section 2).
const responsesKept = 24 * time.Hour

// StoredResponse returns the kept answer to a call with an Idempotency-Key: nil if
// there is none, or none any more; fault.ValidationFailed if it was to another
// call.
func (s *Service) StoredResponse(ctx context.Context, keyID, key string, fingerprint [32]byte) (*StoredResponse, error) {
	return read(ctx, s, func(tx ReadTx) (*StoredResponse, error) {
		a, err := storedResponse(ctx, tx, keyID, key, s.now())
		if a == nil || err != nil {
			return nil, err
		}
		if a.Fingerprint != fingerprint {
			return nil, fault.New(fault.ValidationFailed, "this Idempotency-Key was used for another call: use a new one for each")
		}
		return a, nil
	})
}

// storedResponse returns nil if nothing is kept.
func storedResponse(ctx context.Context, tx IdempotencyReader, keyID, key string, now time.Time) (*StoredResponse, error) {
	a, err := tx.StoredResponse(ctx, keyID, key)
	if fault.CodeOf(err) == fault.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !now.Before(a.CreatedAt.Add(responsesKept)) {
		return nil, nil
	}
	return a, nil
}

// idempotencyOf returns nil for a call without an Idempotency-Key.
func idempotencyOf(ctx context.Context) *Idempotency {
	i, _ := ctx.Value(idempotencyKey{}).(*Idempotency)
	return i
}

// rejectRepeat refuses what was carried out since the caller looked for a
// kept answer, by another process beside this one.
func (w *work) rejectRepeat(ctx context.Context) error {
	i := idempotencyOf(ctx)
	if i == nil {
		return nil
	}
	a, err := storedResponse(ctx, w.Tx, i.KeyID, i.Key, w.now)
	if err != nil {
		return err
	}
	if a != nil {
		return fault.New(fault.Conflict, "a call with this Idempotency-Key has just been carried out: repeat it to get its answer")
	}
	return nil
}

// storeResponse stores the answer of a call with an Idempotency-Key.
func (w *work) storeResponse(ctx context.Context, result any) error {
	i := idempotencyOf(ctx)
	if i == nil {
		return nil
	}
	status, header, body, err := i.Encode(result)
	if err != nil {
		return fmt.Errorf("encode the answer to keep: %w", err)
	}
	return w.PutStoredResponse(ctx, &StoredResponse{
		KeyID: i.KeyID, Key: i.Key, Fingerprint: i.Fingerprint,
		Status: status, Header: header, Body: body, CreatedAt: w.now,
	})
}
