package postgres

import (
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/snapshot"
)

// Guarantee: the numbers of changes are dense, whatever commits and rolls back, on several nodes.
func TestChangesAreDense(t *testing.T) {
	const workers, rounds = 4, 10
	url := migrated(t)
	var wg sync.WaitGroup
	for range workers {
		db := openWith(t, Config{URL: url})
		wg.Go(func() {
			for i := range rounds {
				err := db.mutate(t.Context(), func(tx *tx) error {
					if _, err := tx.AppendChange(t.Context(), snapshot.KeyChange, "k"); err != nil {
						return err
					}
					if i%3 == 0 {
						return errEnded
					}
					return nil
				})
				if err != nil && i%3 != 0 {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	db := openWith(t, Config{URL: url})
	err := db.view(t.Context(), db.source, func(r *readTx) error {
		list, complete, err := r.Changes(t.Context(), 0, workers*rounds)
		if err != nil || !complete || len(list) != workers*6 {
			t.Errorf("got %d changes, complete %t, error %v; want %d", len(list), complete, err, workers*6)
		}
		for i, c := range list {
			if c.Seq != int64(i+1) {
				t.Errorf("change %d has the number %d", i+1, c.Seq)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
