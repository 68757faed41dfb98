// Package limitstore keeps the token buckets that nodes share in Redis or Valkey
// (design, Several nodes, promise 2).
//
// One Lua script does all the work: it takes tokens of one or more buckets, by the clock of the
// store, with exact arithmetic. Nothing else is ever written. A bucket is a hash of its level, the
// parameters that the level belongs to, and the unspent tokens of each node; it expires when it is
// full again. The keys of one account are in one slot of a cluster.
package limitstore
