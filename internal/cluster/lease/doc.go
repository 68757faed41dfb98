// Package lease is the protocol by which a change that was answered is in force on every node. It does
// no I/O: [Holder] is the side of a node, [Watch] the side of whoever waits for a change, and [Row] what
// the store keeps about a node, with the rule of each statement on it. The product and the simulation in
// the tests of this package run the same code.
//
//	node: Holder                       store: Row                  waiter: Watch
//
//	Join ────────────────────────────► epoch+1, grant+1
//	Renew ───────────────────────────► grant+1             ──────► first seen: now, by the waiter's clock
//	Acknowledge ─────────────────────► applied             ──────► has the node applied the change?
//	                                   epoch+1, ended      ◄────── End, when the grant has run out
//
// # Guarantee
//
// A node admits only while it holds a lease, which is to say until TTL after the moment before the call
// that brought its newest grant, by its own clock. A waiter answers a change when every row that has not
// ended has applied it. It ends a row only when TTL and a margin have passed, by its own clock, since it
// first saw the row's newest grant. The write that ends the row does nothing if the row has a newer
// grant by then. So when a change is answered, no node admits without it: each node has applied it, or
// its lease has ended.
//
// Nothing depends on the clock of the store, on two clocks showing the same time, or on how long a
// message takes. It does depend on clocks that run equally fast, within [Expiry]'s margin, and that go on
// while the machine is suspended.
//
// A Join locks mutations out and returns which change is the newest. Later changes wait for the node, and the node
// does not admit before it has applied this change. So a node can join while changes go on: it need not have the
// newest change at the moment of the Join.
//
// # Positions
//
// A [Position] names a state of the change log: the number of a change, and the random mark of that
// change. After a failover that lost changes, numbers are used again but marks are not, so that a
// position of the lost history is noticed wherever it is used.
package lease
