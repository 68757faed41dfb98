// Package targetreport lets the nodes of a cluster know of each other's targets (targets.md, sections 3 and 6).
//
//	Fleet of this node ─► Reporter ─► Store: one row for each node and target that drains, or whose state has changed
//	      │                             │
//	      └──────────► View ◄───────────┘    the state of targets, node by node; what is in flight at a target anywhere
//
// A Reporter writes every two seconds what differs from its last report, and with it the number of a change that was in force on
// the node before it read the figures. So a node that has reported nothing in flight at a target since a change is done with it,
// whether or not it ever had the target. If nothing has changed, nothing is written.
//
// A report belongs to a lease of its node (lease.Row.Claimant). With the next lease the node reports anew, and with the end of a
// lease its reports count no more, so that a node that died holds up nobody.
package targetreport
