package sender

import (
	"fmt"
	"testing"
)

// Guarantee: however many deliveries are handed back at once, as when all endpoints of an account hang, one transaction
// ends at most 128 leases, the oldest first, and in the end all are ended.
func TestReleasesAreWrittenInPieces(t *testing.T) {
	const tasks = 5*writeBatch + 1
	r := newResults()
	for i := range tasks {
		r.release(&task{Job: Job{Lease: Lease{DeliveryID: fmt.Sprint(i)}}})
	}
	next := 0
	for {
		_, released := r.take(writeBatch)
		if len(released) == 0 {
			break
		}
		if len(released) > writeBatch {
			t.Fatalf("%d leases at once, want at most %d", len(released), writeBatch)
		}
		for _, one := range released {
			if one.DeliveryID != fmt.Sprint(next) {
				t.Fatalf("got delivery %s, want %d", one.DeliveryID, next)
			}
			next++
		}
	}
	if next != tasks {
		t.Errorf("%d leases were ended, want %d", next, tasks)
	}
}
