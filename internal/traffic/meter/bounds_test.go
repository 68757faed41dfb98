package meter

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
)

// Guarantee: what counts for usage records is bounded between two writes. Requests of further identities are counted as lost
// for usage records alone; those of known ones still count.
func TestUsageIsBounded(t *testing.T) {
	m, err := New(Config{Store: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	e := accesslog.Entry{Record: accesslog.Record{Start: 1_800_000_000_000_000, Account: [16]byte{1}, Status: 200}}
	e.SetPeriod(0, math.MaxInt64)
	take := func(n int) {
		binary.BigEndian.PutUint32(e.Key[12:], uint32(n+1))
		m.Take([]accesslog.Entry{e})
	}
	for n := range maxUses + 3 {
		take(n)
	}
	take(0)
	e.Status = 201 // another cell of a known identity
	take(1)
	if got := m.LostUsage(); got != 3 || m.Lost() != 0 {
		t.Errorf("usage records lack %d requests and reports %d, want 3 and none", got, m.Lost())
	}
	if got := m.active.usage; got != maxUses {
		t.Errorf("the window has %d identities, want %d", got, maxUses)
	}
}
