package cli

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
)

// growingLog is an audit log that grows, oldest record first.
type growingLog []client.AuditEntry

func (l *growingLog) records(context.Context) iter.Seq2[client.AuditEntry, error] {
	sorted := slices.Clone(*l)
	slices.SortStableFunc(sorted, func(a, b client.AuditEntry) int { return b.Time.Compare(a.Time) })
	return func(yield func(client.AuditEntry, error) bool) {
		for i := range sorted {
			if !yield(sorted[i], nil) {
				return
			}
		}
	}
}

func (l *growingLog) event(at time.Duration) string {
	id := fmt.Sprintf("req_%d", len(*l))
	*l = append(*l, client.AuditEntry{Time: time.Unix(1_800_000_000, 0).Add(at), Kind: "authentication", RequestID: id})
	return id
}

// Guarantee: following a busy log shows each new record once and no older record, even
// if a record appears late, after hundreds of records with later times.
func TestFollowerShowsEachNewRecordOnce(t *testing.T) {
	log := &growingLog{}
	for n := range 5000 {
		log.event(time.Duration(n) * time.Millisecond)
	}
	f := follower{records: log.records, seen: map[string]bool{}}
	first, err := f.next(t.Context(), false, 10)
	if err != nil || len(first) != 10 || first[9].RequestID != "req_4999" {
		t.Fatalf("first poll: %d records, error %v; want the 10 newest", len(first), err)
	}
	for second := range 5 {
		now := time.Duration(5+second) * time.Second
		want := map[string]bool{}
		for n := range 1000 {
			want[log.event(now+time.Duration(n)*time.Millisecond)] = true
		}
		// Late records: their requests started before records that the previous poll has read.
		want[log.event(now-20*time.Millisecond-time.Microsecond)] = true
		want[log.event(now-50*time.Millisecond-time.Microsecond)] = true
		if second > 0 {
			want[log.event(now-800*time.Millisecond-time.Microsecond)] = true
		}
		shown, err := f.next(t.Context(), true, 10)
		if err != nil {
			t.Fatal(err)
		}
		for i := range shown {
			if !want[shown[i].RequestID] {
				t.Fatalf("it shows %s of %s, which is not a new record", shown[i].RequestID, shown[i].Time.UTC())
			}
			delete(want, shown[i].RequestID)
		}
		if len(want) > 0 {
			t.Errorf("%d of the new records are not shown", len(want))
		}
	}
}

// Guarantee: changes that the server makes by itself, without a request, are each
// shown; and following continues after the clock was set back.
func TestFollowerShowsRecordsWithoutRequest(t *testing.T) {
	log := &growingLog{}
	for n := range 300 {
		log.event(time.Duration(n) * time.Second)
	}
	f := follower{records: log.records, seen: map[string]bool{}}
	if _, err := f.next(t.Context(), false, 10); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		*log = append(*log, client.AuditEntry{
			Time: time.Unix(1_800_000_400+int64(n), 0), Kind: "management", AuditAction: &client.AuditAction{Action: "audit.terminal.Gap", Target: "acct_1"},
		})
		shown, err := f.next(t.Context(), true, 10)
		if err != nil || len(shown) != 1 || shown[0].AuditAction == nil {
			t.Fatalf("terminal.Gap %d: got %v, error %v; want the one new record", n, shown, err)
		}
	}
	early := client.AuditEntry{Time: time.Unix(1_700_000_000, 0), Kind: "authentication", RequestID: "req_early"}
	older := f.records
	f.records = func(ctx context.Context) iter.Seq2[client.AuditEntry, error] {
		return func(yield func(client.AuditEntry, error) bool) {
			if yield(early, nil) {
				older(ctx)(yield)
			}
		}
	}
	if shown, err := f.next(t.Context(), true, 10); err != nil || len(shown) != 1 || shown[0].RequestID != "req_early" {
		t.Errorf("after the clock was set back: got %v, error %v; want req_early", shown, err)
	}
}

// Guarantee: a table shows one record for each change, also if the record of its
// authentication appears later. Other records, and changes of the server itself, are shown.
func TestFollowerShowsChangesOnce(t *testing.T) {
	log := &growingLog{}
	change := func(at time.Duration, request string) {
		log.event(at)
		e := &(*log)[len(*log)-1]
		e.Kind, e.AuditAction, e.RequestID = "management", &client.AuditAction{Action: "key.create"}, request
	}
	f := follower{records: log.records, seen: map[string]bool{}, changes: recordedChanges{}}
	show := func(started bool, want ...string) {
		t.Helper()
		shown, err := f.next(t.Context(), started, 10)
		var got []string
		for i := range shown {
			got = append(got, shown[i].Kind+" "+shown[i].RequestID)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, error %v; want %v", got, err, want)
		}
	}
	change(2*time.Second, "req_a")
	change(2*time.Second+time.Millisecond, "")
	show(false, "management req_a", "management ")
	log.event(time.Second)
	(*log)[2].RequestID = "req_a"
	other := log.event(3 * time.Second)
	change(4*time.Second, "req_b")
	log.event(4*time.Second - time.Microsecond)
	(*log)[5].RequestID = "req_b"
	show(true, "authentication "+other, "management req_b")
}
