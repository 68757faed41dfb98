package porttest_test

import (
	"net"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// Guarantee: nobody answers at a reserved address, and a server can listen there
// again and again, one at a time.
func TestReserve(t *testing.T) {
	addr := porttest.Reserve(t)
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.Close()
		t.Fatal("somebody answers")
	}
	for range 3 {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := net.Listen("tcp", addr); err == nil {
			_ = second.Close()
			t.Error("two listen at once")
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		served, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = served.Close() // the server's side closes first, and is remembered by the kernel
		_ = c.Close()
		_ = l.Close()
	}
}
