package porttest_test

import (
	"net"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// Guarantee: nothing listens on a reserved address, and servers can listen on it, one
// after the other.
func TestReservedAddressIsFree(t *testing.T) {
	addr := porttest.Reserve(t)
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.Close()
		t.Fatal("a server listens on the address, want none")
	}
	for range 3 {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := net.Listen("tcp", addr); err == nil {
			_ = second.Close()
			t.Error("two servers listen on the address at once, want an error")
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		served, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = served.Close() // first, so that the server's side is left in TIME_WAIT
		_ = c.Close()
		_ = l.Close()
	}
}
