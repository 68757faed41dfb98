package writer_test

import (
	"context"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/requestlog"
	requestwriter "github.com/keygate/keygate/internal/requestlog/writer"
)

// tailStore takes everything.
type tailStore struct{ requestlog.Store }

func (tailStore) AppendRequests(context.Context, accesslog.BatchID, []requestlog.Record, []requestlog.LeftOut) error {
	return nil
}

// Guarantee: a tail gets each request of its account and filter that is written, in order; it holds a
// bounded number, and counts every one that it drops.
func TestTailIsBoundedAndCountsWhatItDrops(t *testing.T) {
	w := newWriter(t, requestwriter.Config{Store: tailStore{}})
	mine, yours := id.NewFast(), id.NewFast()
	account := id.Format(id.Account, mine)
	all, limited := w.Follow(account, requestlog.Filter{}), w.Follow(account, requestlog.Filter{Status: 429})
	take := func(account [16]byte, status uint16, i int) {
		e := refused(account, time.Duration(i)*time.Millisecond)
		e.Status = status
		w.Take([]accesslog.Entry{e})
	}
	defer all.Close()
	const sent = 900
	for i := range sent {
		status := uint16(503)
		if i%3 == 0 {
			status = 429
		}
		take(mine, status, i)
		take(yours, 403, i)
	}
	if err := w.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tail *requestwriter.Tail
		want int
	}{{all, sent}, {limited, sent / 3}} {
		<-c.tail.Ready()
		list, skipped := c.tail.Take()
		if len(list) != 256 || int(skipped)+len(list) != c.want {
			t.Errorf("got %d requests and %d skipped, want 256 and %d in all", len(list), skipped, c.want)
		}
		for i := range list {
			if list[i].Status == 403 || i > 0 && list[i].Time.Before(list[i-1].Time) {
				t.Fatalf("got %+v after %+v", list[i], list[max(0, i-1)])
			}
		}
		if again, skipped := c.tail.Take(); len(again) != 0 || skipped != 0 {
			t.Errorf("got %d and %d again", len(again), skipped)
		}
	}
	limited.Close()
	take(mine, 429, 901)
	if err := w.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, _ := limited.Take(); len(list) != 0 {
		t.Errorf("a closed tail got %d requests", len(list))
	}
	if list, _ := all.Take(); len(list) != 1 {
		t.Errorf("got %d requests, want 1", len(list))
	}
}
