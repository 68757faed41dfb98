package upstream

import "time"

// A host that vanishes says nothing (targets.md, section 4). What was sent to it and is not acknowledged within vanishTime ends
// the connection. While something is awaited from it, probes are sent: after probeIdle of silence, and every probeEvery.
const (
	vanishTime = 5 * time.Second
	probeIdle  = time.Second
	probeEvery = time.Second
	// restIdle is the idle time of probes of a connection from which nothing is awaited, and the time between two.
	restIdle = 15 * time.Second
)

// Watch makes the connection end if the server's host vanishes while a response is awaited, until Release. Sweepers
// call it for requests that wait for long; it may be called more than once, and by others than the owner.
func (c *H1Conn) Watch() {
	if c.watched.CompareAndSwap(false, true) {
		c.probe(probeIdle, probeEvery)
	}
}

// unwatch ends the effect of Watch.
func (c *H1Conn) unwatch() {
	if c.watched.Load() && c.watched.CompareAndSwap(true, false) {
		c.probe(restIdle, restIdle)
	}
}

// probe sets when probes are sent. If that fails, the connection is closed, or the system does not support it.
func (c *H1Conn) probe(idle, every time.Duration) {
	_ = c.raw.Control(func(fd uintptr) { setProbes(fd, idle, every) })
}
