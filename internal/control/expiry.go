package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/event"
)

// notifyBatchSize is how many keys one transaction of TellExpired takes: enough
// for 1,000 expiries a second, few enough that a change waits little behind it.
const notifyBatchSize = 200

// NotifyExpired raises key.expired for every key whose expiry has passed, once
// for each expiry, whichever node or restart; it returns how many. An expiry
// that is told is marked in the same transaction.
func (s *Service) NotifyExpired(ctx context.Context) (int, error) {
	total := 0
	for {
		told, err := s.notifyBatch(ctx)
		total += told
		if err != nil || told < notifyBatchSize {
			return total, err
		}
	}
}

// notifyBatch looks before it takes the store's write lock: most of the time
// nothing has expired.
func (s *Service) notifyBatch(ctx context.Context) (int, error) {
	due := func(tx KeyReader) ([]apikey.Key, error) { return tx.KeysToNotify(ctx, s.now(), notifyBatchSize) }
	keys, err := read(ctx, s, func(tx ReadTx) ([]apikey.Key, error) { return due(tx) })
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	told := 0
	err = s.cfg.Store.Update(ctx, func(tx Tx) error {
		keys, err := due(tx)
		if err != nil {
			return err
		}
		told = len(keys)
		for i := range keys {
			if err := notifyExpiry(ctx, tx, &keys[i], s.now()); err != nil {
				return err
			}
			if err := tx.UpdateKey(ctx, &keys[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.cfg.Wake()
	return told, nil
}

// notifyExpiry raises key.expired for k and marks it as told; the caller stores k.
// An expiry that was told is left alone.
func notifyExpiry(ctx context.Context, tx Tx, k *apikey.Key, now time.Time) error {
	if k.ExpiryNotified.Equal(k.ExpiresAt) {
		return nil
	}
	k.ExpiryNotified = k.ExpiresAt
	return raise(ctx, tx, k.AccountID, event.KeyExpired, now, k.EventData())
}
