// Package sqlite keeps the store in one SQLite file. It needs no other service
// and no C compiler.
//
// One connection writes, a few read; all are to the same file in WAL mode, so
// that readers never wait for the writer:
//
//	Update ──► writer (1 connection, BEGIN IMMEDIATE … COMMIT)
//	           behind (1 connection) writes the log back into the file
//	View   ──► readers (query_only, one state of the file each)
//	snapshot.Source ──► two readers of its own, so that no search delays the data plane
//
// Several processes may have the file open (the offline commands beside a
// running server): each waits up to Config.BusyTimeout for the others' writes.
//
// What Update has acknowledged is synced to the disk. What is told of traffic, many
// times a second, is in the file when it is acknowledged, so that it outlasts the
// process, and is synced with the next Update, or when the log is written back
// (docs/adr/0007-durability.md). A context that ends
// stops a transaction between its statements, never within one and never in
// COMMIT: Update tells what truly happened.
//
// Listing keys reads an index in the order of the answer for each filter, so
// that a page costs the same with ten keys as with a million. Two things
// cannot: a Query reads the names of the account's keys, newest first, until
// the page is full (a covering index; the worst case is a query that matches
// nothing), and a filter by owner and gateway together reads the owner's keys.
//
// The deliveries of webhooks are a log and a queue in one table. Its lists merge
// one branch of an index for each state and type of event; its queue finds the
// endpoints for which something waits by stepping through an index from one to
// the next, so that what waits for one costs the others nothing. An event that has
// left its list keeps its row, and with it the bytes that are sent, until no
// delivery needs them.
package sqlite
