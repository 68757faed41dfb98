package upstream

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/netguard"
)

// Guarantee: the pools of an account take a bounded amount of memory, however often its gateways change the settings of
// their connections. Those that were used least recently go first; those of other accounts stay. Connections in use
// with former settings count, and beyond the bound there is a 503.
func TestPoolsOfAnAccountAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := NewPools(Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const pools = 8
	origin := func(scheme, account string, n int) Origin {
		return Origin{Scheme: scheme, Host: l.Addr().String(), Account: account, CA: strings.Repeat("x", 1000+n)}
	}
	largest := origin("http", "a", 99)
	p.weights.max = pools * largest.weight()
	plain := func(account string, n int) (*H1Pool, error) { return p.Plain(origin("http", account, n)) }
	other, err := plain("b", 0)
	if err != nil {
		t.Fatal(err)
	}
	var last *H1Pool
	for n := range 100 {
		if last, err = plain("a", n); err != nil {
			t.Fatal(err)
		}
	}
	if kept := len(p.leastUsed("a")); kept > pools || last.forgotten.Load() {
		t.Errorf("%d pools are kept, the newest forgotten: %v; want at most %d", kept, last.forgotten.Load(), pools)
	}
	if other.forgotten.Load() {
		t.Error("the pool of another account was forgotten")
	}
	var open []*H1Conn
	for n := range 100 {
		var pool *H1Pool
		if pool, err = plain("a", n); err != nil {
			break
		}
		c, connErr := pool.Connect(context.Background(), time.Time{})
		if connErr != nil {
			t.Fatal(connErr)
		}
		open = append(open, c)
	}
	if fault.CodeOf(err) != fault.Unavailable || len(open) > pools {
		t.Errorf("with %d connections in use, another pool failed with %v; want a 503 after at most %d", len(open), err, pools)
	}
	for _, c := range open {
		c.Discard()
	}
	if _, err = plain("a", 0); err != nil {
		t.Errorf("after the last connection has ended, a pool failed with %v", err)
	}
}
