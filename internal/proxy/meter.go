package proxy

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

// settleEvery is how often an exchange whose bytes are limited is charged what has passed (plans.md, section 5).
const settleEvery = int64(time.Second)

// meter counts the bytes of an exchange whose charge depends on them. The zero value has counted nothing. Both directions
// may use it at once.
type meter struct {
	in, out atomic.Int64
	next    atomic.Int64 // when the charge is extended next, by Config.Mono; 0 before the first byte

	mu    sync.Mutex // held to change the charge
	total ratelimit.Used
}

// used returns what has passed. mu is held.
func (m *meter) used() *ratelimit.Used {
	m.total[ratelimit.UseBytesIn], m.total[ratelimit.UseBytesOut] = m.in.Load(), m.out.Load()
	return &m.total
}

// passed notes how many bytes have passed in all, in each direction; 0 changes nothing. Once a second it charges them.
func (m *meter) passed(cfg *Config, c *ratelimit.Charge, in, out int64) {
	if in > 0 {
		m.in.Store(in)
	}
	if out > 0 {
		m.out.Store(out)
	}
	now := cfg.Mono()
	next := m.next.Load()
	if now < next || !m.next.CompareAndSwap(next, now+settleEvery) || next == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	cfg.Admit.Extend(c, m.used())
}

// settle settles the charge at the end, when so many bytes have passed, and the costs are settled or there are none.
func (m *meter) settle(cfg *Config, c *ratelimit.Charge, in, out int64) {
	m.in.Store(in)
	m.out.Store(out)
	m.mu.Lock()
	defer m.mu.Unlock()
	cfg.Admit.Settle(c, m.used())
}

// Passed notes how many bytes of the bodies have passed until now, in each direction; 0 changes nothing. An engine calls it
// while a body passes, and every Tick of a long exchange, so that limits of bytes know of it within a second also if nothing
// more passes.
func (x *Exchange) Passed(in, out int64) {
	if x.metered {
		x.meter.passed(x.cfg, &x.Verdict.Charge, in, out)
	}
}

// IsMetered reports whether limits or costs depend on the bytes of the exchange, so that Passed must be called. It is known after
// CheckForward.
func (x *Exchange) IsMetered() bool { return x.metered }

// Settle charges what has passed of the tunnel, if that is due. The engine calls it every Tick.
func (d *Detached) Settle() {
	if d.metered {
		d.meter.passed(d.cfg, d.charge, 0, 0)
	}
}

// Upward returns to, which then counts what is written to it from the client, if limits count the bytes of the tunnel.
func (d *Detached) Upward(to io.Writer) io.Writer {
	return d.counted(to, func(n int64) { d.meter.passed(d.cfg, d.charge, n, 0) })
}

// Downward does the same for what is written to the client.
func (d *Detached) Downward(to io.Writer) io.Writer {
	return d.counted(to, func(n int64) { d.meter.passed(d.cfg, d.charge, 0, n) })
}

func (d *Detached) counted(to io.Writer, passed func(all int64)) io.Writer {
	if !d.metered {
		return to
	}
	return &countedWriter{to: to, passed: passed}
}

// countedWriter tells how many bytes were written in all.
type countedWriter struct {
	to     io.Writer
	all    int64
	passed func(all int64)
}

// Write implements io.Writer.
func (w *countedWriter) Write(b []byte) (int, error) {
	n, err := w.to.Write(b)
	w.all += int64(n)
	w.passed(w.all)
	return n, err
}
