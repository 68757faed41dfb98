package upstream

import "time"

// A host that vanishes says nothing (targets.md, section 4). So while something is awaited from it, probes are sent: after
// probeIdle of silence, and every probeEvery. A connection ends when neither these nor what was sent is acknowledged for
// vanishTime. The kernel sees to that (TCP_USER_TIMEOUT), unless the request has a body: the kernel would also end a connection
// whose server lives, but takes no more of the body for that time.
const (
	vanishTime = 5 * time.Second
	probeIdle  = time.Second
	probeEvery = time.Second
	// restIdle is the idle time of probes of a connection from which nothing is awaited, and the time between two.
	restIdle = 15 * time.Second
)

// Carry notes whether the next request has a body.
func (c *H1Conn) Carry(body bool) {
	if c.carries.Load() != body {
		c.carries.Store(body)
	}
}

// Watch makes the connection end if the server's host vanishes while a response is awaited, until Release. Sweepers
// call it at each tick for a request that waits for long. Others than the owner may call it.
func (c *H1Conn) Watch() {
	switch carries := c.carries.Load(); {
	case c.watched.CompareAndSwap(false, true):
		vanish := vanishTime
		if carries {
			vanish = 0
		}
		c.probe(probeIdle, probeEvery, vanish)
	case carries:
		_ = c.raw.Control(func(fd uintptr) {
			if hasVanished(fd) {
				breakOff(fd)
			}
		})
	}
}

// unwatch ends the effect of Watch.
func (c *H1Conn) unwatch() {
	if c.watched.Load() && c.watched.CompareAndSwap(true, false) {
		c.probe(restIdle, restIdle, 0)
	}
}

// probe sets when probes are sent, and after how long without an acknowledgement the kernel ends the connection; 0 stands for
// its default. If that fails, the connection is closed, or the system does not support it.
func (c *H1Conn) probe(idle, every, vanish time.Duration) {
	_ = c.raw.Control(func(fd uintptr) { setProbes(fd, idle, every, vanish) })
}

// hasVanished reports whether the server's host has acknowledged nothing for vanishTime, though it should have.
func (c *H1Conn) hasVanished() (vanished bool) {
	_ = c.raw.Control(func(fd uintptr) { vanished = hasVanished(fd) })
	return vanished
}
