// Package postgres keeps the store in a PostgreSQL database, which several nodes share.
//
// # Transactions
//
// An Update reads without a lock and queues what it writes. Its last round trip locks the only row of
// change_head, checks that every read would have the same result then, writes and commits (head.go). So mutations are
// serial over all nodes, as they are in SQLite, and the numbers of the change log are dense and in the order of the
// commits; and no round trip of a node passes while it holds the head. If a read has another result, the Update is
// made again, and the third time takes the head first. A statement whose result is needed at once takes the head when
// it is sent. The head is held for a quarter of the lease of the node at most.
//
// The queue of deliveries and records of traffic (write, record) do not take the head. They
// must lock what they read, or change it by one statement.
//
// View and Search read one state of the database from their first statement to their last
// (REPEATABLE READ, READ ONLY).
//
// No transaction lasts longer than a few seconds, even if its process is stopped: the server
// ends it (idle_in_transaction_session_timeout, statement_timeout, lock_timeout). A function
// that runs in a transaction may be called again if the server ended the transaction to resolve
// a conflict (SQLSTATE 40001 or 40P01).
//
// # Durability
//
// When Update returns nil, its changes are as durable as the server's synchronous_commit says,
// and at least on the server's disk. Records of traffic wait for that disk, and for no replica. A context that
// ends stops a transaction between two statements, never within a statement or COMMIT. If the
// connection is lost during COMMIT, Update asks the server what became of the transaction; only
// if it cannot be reached does Update return an error although the changes may have been made.
//
// # Deliveries
//
// The numbers of deliveries come from the row delivery_head, which the transaction then holds, so
// they are dense and in the order of the commits: a sender that reads what is newer than a number
// misses nothing. A claim leases what it can lock at once (FOR UPDATE SKIP LOCKED), so claims of
// several nodes never wait for each other, and never get the same delivery. Leases and retries end by
// the database's clock. The tokens of leases begin with the name of their node, which at its start
// ends the leases of its earlier run, and no others.
//
// # Events
//
// Events have numbers in the order of the commits too, from the row event_head. It is taken before
// delivery_head. The list of events is in their order, so that a client that reads from the newest event back to
// an event that it knows misses nothing. An identifier has the time of a node's clock, and the order of
// identifiers is not the order of the commits.
//
// # Records
//
// Records that several nodes append are never identified by a range of numbers, because a lower
// number may commit later: the audit log is sealed, and traffic is merged, by the identifiers that
// were read, and a chain grows only from the block that its head's row still names. Batches of
// access records leave their number behind (record_batches), so that a batch whose response was lost
// counts once.
//
// # Values
//
// Times are bigint, in microseconds since 1970. Texts compare by their bytes: every text column
// has COLLATE "C". PostgreSQL stores no NUL in a text, and only valid UTF-8: values that may have
// other bytes are bytea.
//
// The constraints and indexes that reject equal records are named "table.column", after the
// column that an error names.
package postgres
