// Package server is the composition root: it builds a whole server from its
// settings, starts its parts in order and drains them in the reverse order
// (contract, section 1).
//
//	data directory ─► lock ─► listeners ─► secret key ─► store ─► ledger ─► snapshot
//	─► first start ─► both planes serve ─► ready
//
// A shutdown first turns /readyz to 503, then stops accepting, waits for what
// runs, writes what is still in memory, and closes the store.
package server
