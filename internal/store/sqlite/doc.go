// Package sqlite keeps the store in one SQLite file. It needs no other service and no C
// compiler.
//
// One connection writes and a few read. All of them open the same file in WAL mode, so
// readers never wait for the writer:
//
//	Update ──► writer (1 connection, BEGIN IMMEDIATE … COMMIT)
//	           checkpointer (1 connection) writes the write-ahead log back into the file
//	View   ──► readers (query_only; each transaction sees one state of the file)
//	Search ──► four more readers, so that no search or report delays a page
//	snapshot.Source ──► two more readers, so that no search delays the data plane
//
// Several processes may have the file open, such as an offline command beside a running
// server. Each waits up to Config.BusyTimeout for the others' writes.
//
// # Durability
//
// When Update returns, its changes are synced to the disk. Records of traffic, which are
// written many times a second, are only in the file: they survive the end of the process,
// and are synced with the next Update or checkpoint (docs/adr/0007-durability.md). A context
// that ends stops a transaction between two statements, never within a statement or COMMIT,
// so the error of Update says reliably whether the changes were made.
//
// # Lists
//
// For each filter, a list of keys reads an index that has the order of the list, so a page
// costs the same with ten keys as with a million. There is one exception: a filter by owner and
// gateway together, without a search, reads all keys of the owner.
//
// A search for a name, a part of it or the start of a prefix looks up n-grams in an inverted
// index, an FTS5 table, whose documents keys.n orders as lists do. Triggers put new and changed
// keys, in the same transaction, into a list of keys whose present form is not in the index.
// Searches read these one by one, and maintenance indexes them in batches, so that a change does
// not pay for it. So every search is exact at any time, and it reads no keys of other accounts.
//
// # Deliveries
//
// Webhook deliveries are a log and a queue in one table. Lists merge one branch of an index
// for each state and event type. The queue finds the endpoints with waiting deliveries by
// stepping through an index from one endpoint to the next, so the backlog of one endpoint
// costs the others nothing. An event that has left the list of events keeps its row, which
// holds the bytes to send, until no delivery needs it.
package sqlite
