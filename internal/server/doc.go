// Package server is the composition root: it builds a server from its settings, starts
// its services in order, and stops them in the reverse order (contract, section 1).
//
//	certificates ─► data directory and lock ─► listeners ─► ops ─► secret key and store
//	─► daily caps ─► snapshot ─► first start ─► webhooks ─► sinks ─► access log
//	─► data plane and management API ─► follower, maintenance, last use ─► ready
//
// A shutdown sets /readyz to 503, stops accepting connections on both planes, waits for
// the requests under way, stops the services in the reverse order, so that each one
// writes what it holds in memory while the store is open, and closes the store.
package server
