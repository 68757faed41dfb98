package h1

import (
	"net"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: a small exchange over persistent connections allocates nothing.
func TestNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Log("not measured: the race detector makes sync.Pool drop objects at random; make test-memory measures it")
		return
	}
	addr := upstreamtest.ServeConstant(t, "HTTP/1.1 200 OK\r\nContent-Length: 381\r\n\r\n"+strings.Repeat("x", 381))
	g := start(t, setup{upstream: "http://" + addr, limit: "1000000000/s"})
	g.sink.discard = true
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	request, b := []byte("GET /a?b=c HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "+g.key+"\r\nAccept: */*\r\n\r\n"), make([]byte, 4096)
	exchange := func() {
		_, _ = conn.Write(request)
		if n, err := conn.Read(b); err != nil || string(b[9:12]) != "200" {
			t.Fatalf("got response %q, error %v; want a 200", b[:n], err)
		}
	}
	for range 100 {
		exchange()
	}
	// Background work, such as the sweeper, may allocate now and then.
	if n := testing.AllocsPerRun(2000, exchange); n > 0.1 {
		t.Errorf("got %v allocations per exchange, want 0", n)
	}
}
