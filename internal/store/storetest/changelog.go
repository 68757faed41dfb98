package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/snapshot"
)

func (h *harness) changes(seq int64, limit int) ([]snapshot.Change, bool) {
	h.Helper()
	list, complete, err := h.Changes(h.Context(), seq, limit)
	if err != nil {
		h.Fatal(err)
	}
	return list, complete
}

func (h *harness) lastSeq() int64 {
	h.Helper()
	seq, err := h.LastSeq(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	return seq
}

func (h *harness) appendChanges(ids ...string) {
	h.Helper()
	h.update(func(ctx context.Context, tx control.Tx) error {
		for _, id := range ids {
			if _, err := tx.AppendChange(ctx, snapshot.KeyChange, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func changed(list []snapshot.Change) []string {
	all := []string{}
	for _, c := range list {
		all = append(all, c.ID)
	}
	return all
}

// Guarantee: the log returns every change once, in order and in pages, through both interfaces.
func testChangeLog(h *harness) {
	same(h, "seq of an empty log", h.lastSeq(), int64(0))
	list, complete := h.changes(0, 10)
	same(h, "empty log", fmt.Sprint(len(list), complete), "0 true")

	h.update(func(ctx context.Context, tx control.Tx) error {
		_, err := tx.AppendChange(ctx, snapshot.AccountChange, "a")
		return err
	})
	h.update(func(ctx context.Context, tx control.Tx) error {
		_, err := tx.AppendChange(ctx, snapshot.GatewayChange, "g")
		return err
	})
	h.appendChanges("k1", "k2")
	h.update(func(ctx context.Context, tx control.Tx) error {
		_, err := tx.AppendRevocation(ctx, "k1", apikey.Digest{1})
		return err
	})
	all, complete := h.changes(0, 10)
	same(h, "ids", changed(all), []string{"a", "g", "k1", "k2", "k1"})
	same(h, "kinds", []snapshot.ChangeKind{all[0].Kind, all[1].Kind, all[2].Kind}, []snapshot.ChangeKind{snapshot.AccountChange, snapshot.GatewayChange, snapshot.KeyChange})
	same(h, "complete", complete, true)
	for i := 1; i < len(all); i++ {
		if all[i].Seq <= all[i-1].Seq {
			h.Fatalf("the sequence numbers do not increase: %v", all)
		}
	}
	same(h, "last seq", h.lastSeq(), all[4].Seq)
	page, _ := h.changes(all[1].Seq, 2)
	same(h, "page", page, all[2:4])
	none, complete := h.changes(all[4].Seq, 10)
	same(h, "at the end", fmt.Sprint(len(none), complete), "0 true")
	_, complete = h.changes(all[4].Seq+1, 10)
	same(h, "beyond the end is another history", complete, false)

	inside := get(h, func(ctx context.Context, tx control.ReadTx) ([]snapshot.Change, error) {
		list, _, err := tx.Changes(ctx, 0, 10)
		return list, err
	})
	same(h, "through a View", inside, all)
}

// Guarantee: a reader whose next change was trimmed gets complete = false; other readers miss
// nothing. Sequence numbers continue even if all changes were trimmed.
func testChangeLogTrim(h *harness) {
	h.appendChanges("1", "2", "3", "4")
	all, _ := h.changes(0, 10)
	trim := func(before time.Time, limit int) (more bool) {
		h.update(func(ctx context.Context, tx control.Tx) (err error) {
			more, err = tx.Trim(ctx, time.Unix(0, 0), before, time.Unix(0, 0), 0, limit)
			return err
		})
		return more
	}
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	same(h, "nothing is old", trim(past, 10), false)
	list, complete := h.changes(0, 10)
	same(h, "untrimmed", fmt.Sprint(len(list), complete), "4 true")

	same(h, "more", trim(future, 2), true)
	_, complete = h.changes(0, 10)
	same(h, "from the beginning", complete, false)
	_, complete = h.changes(all[0].Seq, 10)
	same(h, "from within what was trimmed", complete, false)
	list, complete = h.changes(all[1].Seq, 10)
	same(h, "from the last trimmed", fmt.Sprint(changed(list), complete), "[3 4] true")

	for trim(future, 2) {
		continue
	}
	same(h, "more of a trimmed log", trim(future, 1), false)
	same(h, "last seq of a trimmed log", h.lastSeq(), all[3].Seq)
	list, complete = h.changes(all[3].Seq, 10)
	same(h, "at the end", fmt.Sprint(len(list), complete), "0 true")
	_, complete = h.changes(all[2].Seq, 10)
	same(h, "one behind", complete, false)
	h.appendChanges("5")
	list, complete = h.changes(all[3].Seq, 10)
	same(h, "after a new entry", fmt.Sprint(changed(list), complete), "[5] true")
	if list[0].Seq <= all[3].Seq {
		h.Fatalf("the sequence number %d was used twice", list[0].Seq)
	}
}
