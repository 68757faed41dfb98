package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/event"
)

// notifyBatchSize is how many keys one transaction of NotifyExpired handles: enough for 1,000
// expiries a second, and few enough that other changes wait only for some 10 ms.
const notifyBatchSize = 50

// NotifyExpired raises key.expired for every key that has expired, and returns their number. Each
// expiry is notified once, even with several nodes and restarts, because it is marked in the same
// transaction.
func (s *Service) NotifyExpired(ctx context.Context) (int, error) {
	total := 0
	for {
		notified, err := s.notifyBatch(ctx)
		total += notified
		if err != nil || notified < notifyBatchSize {
			return total, err
		}
	}
}

// notifyBatch reads before it takes the store's write lock, because usually nothing has expired.
func (s *Service) notifyBatch(ctx context.Context) (int, error) {
	due := func(tx KeyReader) ([]apikey.Key, error) { return tx.KeysToNotify(ctx, s.now(), notifyBatchSize) }
	keys, err := view(ctx, s, func(tx ReadTx) ([]apikey.Key, error) { return due(tx) })
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	notified := 0
	err = s.cfg.Store.Update(ctx, func(tx Tx) error {
		keys, err := due(tx)
		if err != nil {
			return err
		}
		notified = len(keys)
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
	return notified, nil
}

// notifyExpiry raises key.expired for k and marks the expiry as notified, unless it already is. The
// caller stores k.
func notifyExpiry(ctx context.Context, tx Tx, k *apikey.Key, now time.Time) error {
	if k.ExpiryNotified.Equal(k.ExpiresAt) {
		return nil
	}
	k.ExpiryNotified = k.ExpiresAt
	return raise(ctx, tx, k.AccountID, event.KeyExpired, now, k.EventData())
}
