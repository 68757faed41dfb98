// Package cluster keeps a promise of nodes that share a store: once a call that makes a change has
// returned, the change is in force on every node. The protocol itself is in package lease; this package
// runs it.
//
//	Member: a node                                     Waiter: a node that serves mutations
//
//	joins, renews its lease, acknowledges what the     reads all leases, ends those that ran out, and
//	Follower has put in force, gives the lease back    answers who waits for a change
//	          │                                                  │
//	          ▼                                                  ▼
//	   LeaseStore: one connection of its own             ViewStore
//
// The data plane and the management API ask the Member, for each request, whether the lease is held
// ([Member.Held]). [Hints] wakes the Follower when the store notifies of a change.
package cluster
