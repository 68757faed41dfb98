package audit

import (
	"net/netip"
	"time"

	"github.com/keygate/keygate/internal/clientip"
)

// A record with a Count stands for the refused authentications of one address within a minute that are beyond
// the first ones. A writer adds one to each chunk in which there are any, so that a crash loses no more of them
// than of other records. All of a minute become one when the open end is read, joined or sealed.

// Minute returns the minute in which records are counted together, of a time in microseconds since 1970.
func Minute(us int64) int64 { return us / time.Minute.Microseconds() }

// countOf returns the Count of a record, or 0.
func (t *Table) countOf(r *row) int64 {
	if r.extra == 0 || t.extras[r.extra-1].seq >= 0 || class(t.calls.entries[r.entry[callColumn]][0]).kind() != Authentication {
		return 0
	}
	return -t.extras[r.extra-1].seq
}

// AddCounted is AddEvent for a record with the Count 1. It returns the number of the record for CountEvent.
func (t *Table) AddCounted(e *Event) (row int) {
	t.addEvent(e, 1)
	return len(t.rows) - 1
}

// CountEvent adds 1 to the Count of a record of AddCounted, for an authentication of the same address and minute.
// The table must not have been sorted since.
func (t *Table) CountEvent(row int, e *Event) {
	c, _ := classOf(Authentication, e.Outcome)
	t.room = appendCaller(t.room[:0], new(e.callerKey()))
	t.include(&t.rows[row], 1, c)
}

// CountRecord is CountEvent for a Record.
func (t *Table) CountRecord(row int, r *Record) {
	c, _ := classOf(r.Kind, r.Outcome)
	t.room = r.appendCaller(t.room[:0])
	t.include(&t.rows[row], 1, c)
}

// include makes a record with a Count stand for n more, of the class c and of the caller in t.room.
func (t *Table) include(r *row, n int64, c class) {
	t.extras[r.extra-1].seq -= n
	if t.callers.entries[r.entry[callerColumn]] != string(t.room) {
		r.entry[callerColumn] = t.common(t.callers.entries[r.entry[callerColumn]], string(t.room))
	}
	if call := t.calls.entries[r.entry[callColumn]]; class(call[0]) != c {
		invalid, _ := classOf(Authentication, KeyInvalid)
		r.entry[callColumn] = t.internCall(invalid, call[1:])
	}
}

// common returns the entry number of what two entries of callers have in common.
func (t *Table) common(a, b string) uint32 {
	was, _ := readCaller(a)
	now, _ := readCaller(b)
	t.room = t.room[:0]
	for _, part := range [...][2]string{{was.prefix, now.prefix}, {was.key, now.key}, {was.gateway, now.gateway}} {
		if part[0] == part[1] {
			t.room = append(t.room, part[0]...)
		} else {
			t.room = append(t.room, absent)
		}
	}
	return t.intern(&t.callers)
}

// counted is what records with a Count that become one have in common.
type counted struct {
	client clientip.Group
	minute int64
}

// Merge makes one record of all records with a Count of the same address and minute, and returns how many records
// fewer there are. The address of the record, its time, request and call are those of the first of them.
func (t *Table) Merge() (fewer int) {
	if t.counts < 2 {
		return 0
	}
	groups := make([]clientip.Group, len(t.clients.entries))
	first := make(map[counted]int, t.counts) // the number of a row in kept
	kept := t.rows[:0]
	for _, r := range t.rows {
		if t.countOf(&r) == 0 {
			kept = append(kept, r)
			continue
		}
		client := r.entry[clientColumn]
		if groups[client] == (clientip.Group{}) {
			addr, _ := netip.ParseAddr(readText(t.clients.entries[client], ""))
			groups[client] = clientip.GroupOf(addr)
		}
		k := counted{groups[client], Minute(r.time)}
		at, known := first[k]
		if !known {
			first[k] = len(kept)
			kept = append(kept, r)
			continue
		}
		one := &kept[at]
		if t.compare(r, *one) < 0 {
			*one, r = r, *one
		}
		t.room = append(t.room[:0], t.callers.entries[r.entry[callerColumn]]...)
		t.include(one, t.countOf(&r), class(t.calls.entries[r.entry[callColumn]][0]))
	}
	fewer = len(t.rows) - len(kept)
	t.rows = kept
	t.counts -= fewer
	return fewer
}
