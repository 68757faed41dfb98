package h1

import (
	"net"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/upstream"
)

// Guarantee: after a response, if the upstream does not take the last part of the request's body, the engine does
// not wait for it, and does not use its connection again.
func TestLastPartThatIsNotTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // whose connections nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer pools.Close()
	pool, err := pools.Plain(upstream.Origin{Scheme: "http", Host: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	up, err := pool.Acquire(t.Context(), time.Time{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer up.Discard()
	c, x := &conn{}, &exchange{}
	u := &upload{c: c, x: x, to: up, done: make(chan struct{})}
	x.upload = u
	u.ending.Store(true)
	go func() {
		defer close(u.done)
		u.complete.Store(u.write(make([]byte, 64<<20)))
	}()
	ended := make(chan bool, 1)
	go func() { ended <- c.endUpload(x) }()
	select {
	case whole := <-ended:
		if whole {
			t.Error("the request counts as sent")
		}
	case <-time.After(testTimeout):
		t.Error("the end of the response waits for the upstream")
	}
}
