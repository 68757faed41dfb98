// Package porttest gives tests addresses that are their own: no program that
// asks for a free port gets one of them, as it may one that a test has looked up
// and closed.
package porttest

import "testing"

// Reserve returns an address of the loopback, host and port, at which nobody
// listens. Until the test ends nobody does but who is told it: a server may
// listen there, end, and listen again.
func Reserve(t testing.TB) string {
	t.Helper()
	addr, release, err := reserve()
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	t.Cleanup(release)
	return addr
}
