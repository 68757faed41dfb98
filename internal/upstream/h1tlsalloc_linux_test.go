//go:build !race

package upstream

import (
	"crypto/tls"
	"testing"
)

// Guarantee: an exchange over a kept TLS connection, with the look at it before, allocates
// nothing but what crypto/tls does for each receive. The race detector makes pools drop what is put back.
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
