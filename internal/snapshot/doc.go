// Package snapshot holds what the data plane knows of the stored configuration,
// compiled: hostnames to gateways, each gateway's route tree, limits and
// upstream, and key digests to keys (architecture, Snapshot).
//
// Gateways and accounts stand in one immutable Snapshot behind one atomic
// pointer. Keys stand in shards of small immutable tables, each behind a
// pointer of its own, so that a change of one key copies some hundred pointers
// whether there are ten keys or a million. Follower follows the store's change log
// and publishes; the state of limits lives outside and passes from one
// publication to the next by route identifier, key bucket and gateway.
package snapshot
