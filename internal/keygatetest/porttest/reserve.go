// Package porttest reserves ports for tests. The system gives a reserved port to no program that
// asks for any free port, in contrast to a port that a test found free and closed again.
package porttest

import "testing"

// Reserve returns an address of 127.0.0.1, with a port on which nothing listens. A
// server that is given the address may listen on it, stop and listen again. No other
// test gets the port until this one ends.
func Reserve(t testing.TB) string {
	t.Helper()
	addr, release, err := reserve()
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	t.Cleanup(release)
	return addr
}

// Hold does the same as Reserve, for a server that outlives one test. release gives the port back.
func Hold() (addr string, release func(), err error) { return reserve() }
