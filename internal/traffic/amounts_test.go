package traffic

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// oneChunk is a ChunkReader with one chunk.
type oneChunk struct{ Chunk }

func (c *oneChunk) ReadTraffic(_ context.Context, _ ChunkQuery, f func(*Chunk) error) error {
	return f(&c.Chunk)
}

// Guarantee: a report tells at most 64 meters apart, and has the units of all others as "other". So has the list of what has
// most.
func TestMetersOfReportsAreBounded(t *testing.T) {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	m := &Merger{part: Keys, entries: map[Identity]*Entry{}}
	const meters = 200
	for n := range meters { // beside the Merger, which tells no more apart
		e := m.at(Identity{Key: identifier(n%2 + 1), Gateway: identifier(1), Status: 200}, nil)
		e.Requests++
		e.Amounts.Add(fmt.Sprintf("m%03d", n), 1)
	}
	c := m.Chunks(Chunk{Start: now.Unix() - now.Unix()%60})[0]
	q := Query{Interval: Minute, Group: ByKey, Since: now.Truncate(time.Minute), Until: now}
	list, err := Report(t.Context(), &oneChunk{c}, "acct_1", q, now)
	if err != nil || len(list) != 2 {
		t.Fatalf("got %d rows and the error %v, want 2", len(list), err)
	}
	top, err := Top(t.Context(), &oneChunk{c}, "acct_1", q, ByRequests, 2, now)
	if err != nil || len(top) != 2 {
		t.Fatalf("got %d groups and the error %v, want 2", len(top), err)
	}
	for what, rows := range map[string][]Row{"report": list, "top": {top[0].Row, top[1].Row}} {
		told, units := map[string]bool{}, int64(0)
		for _, r := range rows {
			for i, a := range r.Meters {
				told[a.Meter] = true
				if units += a.Units; i > 0 && r.Meters[i-1].Meter >= a.Meter {
					t.Errorf("%s: got %v, want the meters in order", what, r.Meters)
				}
			}
		}
		if len(told) != MaxMeters+1 || !told[OtherMeter] || units != meters {
			t.Errorf("%s: got %d meters with %d units, want %d, %q among them, with %d", what, len(told), units, MaxMeters+1, OtherMeter, meters)
		}
	}
}

// Guarantee: a report with very many figures of meters is refused, and says what to do.
func TestFiguresOfMetersAreBounded(t *testing.T) {
	var told amounts
	refused := error(nil)
	rows := 0
	for ; refused == nil && rows < 2*maxAmounts; rows++ {
		var row Amounts
		refused = told.add(&row, Amounts{{"tokens", 1}})
	}
	if fault.CodeOf(refused) != fault.ValidationFailed || rows != maxAmounts+1 {
		t.Errorf("got the error %v after %d rows, want a validation error after %d", refused, rows, maxAmounts+1)
	}
}

// Guarantee: a filter by key leaves the amounts of other keys out.
func TestFilterOfAmounts(t *testing.T) {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	m := NewMerger(Keys)
	for n := range 3 {
		m.Add(&Entry{Identity: Identity{Key: identifier(n + 1), Status: 200}, Counts: Counts{Requests: 1}, Amounts: Amounts{{"tokens", int64(n + 1)}}})
	}
	c := m.Chunks(Chunk{Start: now.Unix() - now.Unix()%60})[0]
	q := Query{Interval: Minute, KeyID: id.Format(id.Key, identifier(2)), Since: now.Truncate(time.Minute), Until: now}
	list, err := Report(t.Context(), &oneChunk{c}, "acct_1", q, now)
	if err != nil || len(list) != 1 || fmt.Sprint(list[0].Meters) != "[{tokens 2}]" {
		t.Errorf("got %v and the error %v, want 2 tokens", list, err)
	}
}
