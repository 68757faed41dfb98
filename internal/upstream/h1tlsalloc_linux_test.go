//go:build !race

package upstream

import (
	"crypto/tls"
	"testing"
)

// Guarantee: an exchange over a kept TLS connection, including the check before it, allocates only what
// crypto/tls allocates for each receive. (The race detector makes sync.Pools drop what is put back.)
func TestSecureAllocations(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		pool := newSecureTest(t, &tls.Config{MaxVersion: version}, respond)
		e := newExchanger(acquire(t, pool, nil))
		if n := testing.AllocsPerRun(500, func() {
			if err := e.again(pool); err != nil {
				t.Fatal(err)
			}
		}); n > 2 {
			t.Errorf("%s: an exchange makes %v allocations, want one of crypto/tls on each side", tls.VersionName(version), n)
		}
		e.c.Discard()
	}
}
