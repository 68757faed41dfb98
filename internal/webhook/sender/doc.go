// Package sender makes the requests that deliver events to endpoints (contract,
// section 6).
//
// The deliveries that wait are rows of the store, its Queue. A sender leases
// what is due, sends it, and writes the results back, all in batches:
//
//	store ──claim──► held, by endpoint ──window──► in flight ──► results ──finish──► store
//
// A process that dies leaves leases behind, which end after Lease; a delivery is
// then sent again, by whoever claims it: at least once, never lost.
//
// What is held when its endpoint changes is handed back and claimed anew (Recall),
// so that it goes out as the endpoint then stands. What is in flight is not cut off.
package sender
