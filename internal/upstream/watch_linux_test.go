package upstream

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Guarantee: targets.md, 4. What was sent to a host that has vanished ends its connection after 5 s. While a response is
// awaited for long, a silent host is probed each second; while none is, rarely.
func TestVanishedHostsAreNoticed(t *testing.T) {
	p := newPeer(t)
	_, pool := newPlain(t, Config{}, p.addr)
	c := acquire(t, pool, nil)
	option := func(option int) (n int) {
		t.Helper()
		if err := c.raw.Control(func(fd uintptr) {
			var err error
			if n, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	want := func(when string, idle, every int) {
		t.Helper()
		if gotIdle, gotEvery := option(unix.TCP_KEEPIDLE), option(unix.TCP_KEEPINTVL); gotIdle != idle || gotEvery != every {
			t.Errorf("%s: probes come after %d s and every %d s, want %d and %d", when, gotIdle, gotEvery, idle, every)
		}
	}
	if got := option(unix.TCP_USER_TIMEOUT); got != 5000 {
		t.Errorf("the connection ends after %d ms without an acknowledgement, want 5000", got)
	}
	want("at first", 15, 15)
	c.Watch()
	c.Watch()
	want("while a response is awaited", 1, 1)
	c.Release()
	if again := acquire(t, pool, c); again != c {
		t.Fatal("the connection was not used again")
	}
	want("after it was released", 15, 15)
	c.Watch()
	c.Hold()
	want("while it is bound and idle", 15, 15)
	c.Discard()
}
