// Package spooled keeps the records that access records make (audit records, counts of traffic, refused
// requests, events) in a bounded spool on the node's disk while the store does not take them, and writes
// them to the store later, in order, also in a later process (docs/adr/0021-spool.md).
//
//	sinks ── Append… ──► store
//	            │          ▲
//	            └─► spool ─┘  once it takes writes again
//
// Each kind of records has a queue of its own. While a queue is not empty, further batches of its kind go
// into it and not to the store: because the store takes a batch for a repetition if it has a later batch of
// the same writer. Every batch keeps its accesslog.BatchID, so that nothing is counted twice if the
// response to a write was lost, or the process was killed before it had removed a stored batch from the
// spool.
//
// If a queue is full, the newest batches stay with their sinks, as they would without a spool: these keep
// what fits in their memory, and count the rest as lost.
package spooled
