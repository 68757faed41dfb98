// Package resolve looks up the names of targets again and again (targets.md, section 5), and keeps what it has found outside of
// the snapshot, as package balance keeps the state of targets.
//
//	Resolver ─┬─► schedule   which name is looked up when: no I/O and no clock
//	          └─► lookUp     one look-up, by Go's resolver
//
// An upstream says with Want which names it wants. Each name of an account is looked up once in the shortest refresh of the
// upstreams that want it, however many they are. A failure, a name that does not exist and an empty response change nothing but
// Found.Degraded: what was found last stays. When something changes, Config.Changed is called with each upstream that wants the
// name.
//
// A tenant can neither delay the look-ups of others nor use up memory: look-ups at a time, and addresses, are bounded for each
// account and in all. Accounts take turns, and so do the names of an account.
package resolve
