package upstream

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Guarantee: targets.md, 4. While a response is awaited for long, a silent host is probed each second, and its connection ends
// when it has acknowledged nothing for 5 s; while none is awaited, it is probed rarely. If the request has a body, the kernel
// does not end the connection, since the server may only be slow to take it.
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
	want := func(when string, idle, every, vanish int) {
		t.Helper()
		if i, e, v := option(unix.TCP_KEEPIDLE), option(unix.TCP_KEEPINTVL), option(unix.TCP_USER_TIMEOUT); i != idle || e != every || v != vanish {
			t.Errorf("%s: probes come after %d s and every %d s, and the end after %d ms; want %d, %d and %d", when, i, e, v, idle, every, vanish)
		}
	}
	want("at first", 15, 15, 0)
	c.Carry(false)
	c.Watch()
	c.Watch()
	want("while a response is awaited", 1, 1, 5000)
	c.Release()
	if again := acquire(t, pool, c); again != c {
		t.Fatal("the connection was not used again")
	}
	want("after it was released", 15, 15, 0)
	c.Carry(true)
	c.Watch()
	c.Watch()
	want("while the response to a request with a body is awaited", 1, 1, 0)
	if c.hasVanished() {
		t.Error("a host that lives has vanished")
	}
	c.Hold()
	want("while it is bound and idle", 15, 15, 0)
	c.Discard()
}
