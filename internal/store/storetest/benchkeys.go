package storetest

import (
	"context"
	"errors"
	"sync"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/snapshot"
)

// keyCallers is how many calls create and revoke keys at the same time.
const keyCallers = 8

// benchKeys measures the transactions of calls that create a key, with its audit record, event and
// change, and that revoke it, one after the other and side by side.
func benchKeys(b *bench, callers int) {
	create := func() *apikey.Key {
		k := newKey(&b.account)
		b.change(k, control.Tx.InsertKey)
		return k
	}
	work := make(chan struct{})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range work {
				k := create()
				k.RevokedAt = epoch()
				b.change(k, control.Tx.UpdateKey)
			}
		})
	}
	for b.Loop() {
		work <- struct{}{}
		b.done += 2
	}
	close(work)
	wg.Wait()
	b.report("changes")
}

// change makes one change of a key as control does.
func (b *bench) change(k *apikey.Key, f func(control.Tx, context.Context, *apikey.Key) error) {
	ctx := b.Context()
	err := b.Update(ctx, func(tx control.Tx) error {
		if _, err := tx.Account(ctx, b.account.ID); err != nil {
			return err
		}
		if err := f(tx, ctx, k); err != nil {
			return err
		}
		e, err := event.New(b.account.ID, event.KeyCreated, epoch(), event.Key{KeyID: k.ID})
		return errors.Join(err, tx.AppendAudit(ctx, newAudit(&b.account, k.ID)), tx.AppendEvent(ctx, &e), appendChange(ctx, tx, snapshot.KeyChange, k.ID))
	})
	if err != nil {
		b.Error(err)
	}
}
