// Package cluster tests several nodes as users run them: processes of the built binary that share a
// PostgreSQL and a Redis server, with cables between each node and each store that a test cuts.
//
// TestFaults runs a load on both planes while stores and nodes fail, one after another, and checks
// what docs/several-nodes.md promises. make soak runs the same test for as long as its DURATION
// says. Faults, and the nodes that they hit, follow from a seed, which is printed. A fault lasts until
// the load has got a number of responses, not for a time.
package cluster
