// Package snapshot compiles the stored configuration into the form that the data plane
// reads, and keeps it current.
//
//	        Source: accounts, plans, owners, gateways, keys
//	          │ records by ID                         one atomic load
//	ChangeLog ├──► Follower ──compile──► publish ──► Snapshot ◄──────── request path
//	          │      CatchUp after each commit, and
//	          │      at every PollInterval
//
// A Snapshot is immutable: accounts, gateways by hostname, and for each gateway its route
// tree, limits and upstream. It is published by storing one atomic pointer. Keys are the
// exception, as there may be a million of them: they are in a table of shards that the
// snapshots share, each shard immutable behind its own pointer, so that a change of
// one key copies some hundred pointers whether there are ten keys or a million.
//
// Plans and owners are slots that snapshots share too: keys and gateways point to them, so
// that a change of a plan or owner stores one pointer, however many keys have it.
//
// Every committed change is an entry of the change log. A Follower reads the log and the
// records that it names again. Plans, owners, keys and accounts are then in force at once.
// Gateways follow, each in the order of its own changes, and hold no lock that other changes
// need: a large route table that is being compiled delays no revocation. A change of a gateway's settings or of a single
// route keeps the compiled route tree where it can. CatchUp returns when the changes committed
// before the call, or the changes that it is given, are in force.
//
// The state of rate limits is not part of a snapshot: a newly compiled route, key or
// gateway takes over the buckets of its predecessor, and a plan those of its limits with
// the same names, so that no publication refills a bucket.
package snapshot
