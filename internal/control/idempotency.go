package control

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// responsesKept is how long the response to a call with an Idempotency-Key is returned again
// (contract, section 2).
const responsesKept = 24 * time.Hour

// StoredResponse returns the stored response to a call with an Idempotency-Key. It returns nil if
// there is none or it is too old. If the key was used for another call, the error is
// fault.ValidationFailed.
func (s *Service) StoredResponse(ctx context.Context, keyID, key string, fingerprint [32]byte) (*StoredResponse, error) {
	return view(ctx, s, func(tx ReadTx) (*StoredResponse, error) {
		a, err := storedResponse(ctx, tx, keyID, key, s.now())
		if a == nil || err != nil {
			return nil, err
		}
		if a.Fingerprint != fingerprint {
			return nil, fault.New(fault.ValidationFailed, "this Idempotency-Key was used for another call: use a new key for each call")
		}
		return a, assemble(ctx, tx, a)
	})
}

// storedResponse returns nil if there is no response to return again. Its body may be in parts; see assemble.
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

// rejectRepeat fails if another call with the same Idempotency-Key, perhaps to another process,
// has stored its response since the caller looked for one, or if there is no room to store one.
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
		return fault.New(fault.Conflict, "another call with this Idempotency-Key has just completed: repeat the call to get its response")
	}
	return w.roomForResponse(ctx)
}

// storeResponse stores the response to a call with an Idempotency-Key.
func (w *work) storeResponse(ctx context.Context, result any) error {
	i := idempotencyOf(ctx)
	if i == nil {
		return nil
	}
	status, header, body, err := i.Encode(result)
	if err != nil {
		return fmt.Errorf("encode the response to store: %w", err)
	}
	return w.putResponse(ctx, &StoredResponse{
		KeyID: i.KeyID, Key: i.Key, Fingerprint: i.Fingerprint,
		Status: status, Header: header, Body: body, CreatedAt: w.now,
	})
}

// putResponse stores a response, or a part of one, if the account has room for it.
func (w *work) putResponse(ctx context.Context, r *StoredResponse) error {
	most, mostBytes := w.bounds.responses()
	if err := w.RequireRoomForResponse(ctx, w.actor.Account.ID, most, mostBytes-int64(len(r.Body))+1, w.fullOfResponses(most)); err != nil {
		return err
	}
	return w.PutStoredResponse(ctx, r)
}
