package adminapi

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: hooks from ever new addresses, which need no secret, take little memory. When there is no room for
// a further address, addresses that have sent no hook for a while make room.
func TestHooksOfManyAddresses(t *testing.T) {
	now := ratelimit.Instant{Mono: int64(time.Hour)}
	bounds := newHookBounds(func() ratelimit.Instant { return now })
	address := func(n int) (a [16]byte) {
		binary.BigEndian.PutUint64(a[:], uint64(n))
		return a
	}
	known, charge := 0, new(ratelimit.Charge)
	for ; ; known++ {
		if known > hooksMemory/32 {
			t.Fatalf("%d addresses are counted", known)
		}
		status, refused := bounds.refused.decide(charge, address(known), true)
		if refused {
			if status.RetryAfter < 1 {
				t.Errorf("Retry-After: %d", status.RetryAfter)
			}
			break
		}
	}
	if known < 100_000 {
		t.Errorf("only %d addresses are counted", known)
	}
	if status, _ := bounds.refused.decide(charge, address(0), false); status.Remaining != 59 {
		t.Errorf("an address that is counted has %d hooks left, want 59", status.Remaining)
	}
	if _, refused := bounds.accepted.decide(charge, address(0), true); refused {
		t.Error("a gateway has no room because addresses have none")
	}
	now.Mono += int64(3 * time.Second) // the only hook of each address is forgiven after a second, and dropped a second later
	if _, refused := bounds.refused.decide(charge, address(known), true); refused {
		t.Error("addresses that have sent nothing for a while make no room")
	}
}
