package id_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/id"
)

// Guarantee: identifiers sort by their times, to the microsecond, and with the same time in the
// order of their creation. None is created twice.
func TestNewAt(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 890123000, time.UTC)
	last := ""
	for range 1000 {
		for range 20 {
			made := id.NewAt(id.Event, at)
			if made <= last {
				t.Fatalf("created %s after %s, want a greater one", made, last)
			}
			last = made
		}
		at = at.Add(time.Microsecond)
	}
	u, ok := id.Parse(id.Event, last)
	if v := uuid.UUID(u); !ok || v.Version() != 7 || v.Variant() != uuid.RFC4122 {
		t.Errorf("%s is not a UUIDv7", last)
	}
}

// Guarantee: Lowest separates the identifiers of earlier times from the others.
func TestLowest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMicro(rapid.Int64Range(0, 253402300799999999).Draw(t, "at"))
		bound := id.Lowest(id.Delivery, at)
		if made := id.NewAt(id.Delivery, at); made < bound {
			t.Fatalf("identifier %s for the time of the bound is below the bound %s", made, bound)
		}
		if at.UnixMicro() > 0 {
			if made := id.NewAt(id.Delivery, at.Add(-time.Microsecond)); made >= bound {
				t.Fatalf("identifier %s for an earlier time is not below the bound %s", made, bound)
			}
		}
	})
}

// Guarantee: an identifier does not reveal the next one for the same time, which is not among the few
// million numbers that follow.
func TestNextIdentifierIsNotGuessed(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 890123000, time.UTC)
	near, last := 0, uint64(0)
	const made = 10_000
	for range made {
		u, ok := id.Parse(id.Gateway, id.NewAt(id.Gateway, at))
		if !ok {
			t.Fatal("not an identifier")
		}
		next := binary.BigEndian.Uint64(u[8:])
		if next-last < 1<<22 {
			near++
		}
		last = next
	}
	if near > made/100 { // one in a thousand
		t.Errorf("%d of %d identifiers are among the 4 million after the last one", near, made)
	}
}
