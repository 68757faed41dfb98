package accesslog

import (
	"fmt"
	"runtime/debug"
	"time"
)

// logEvery is the shortest time between two log lines about panics of the same sink.
const logEvery = time.Minute

// deliver gives a batch to one sink. If the sink panics, the other sinks still get the
// batch, the panic is counted and logged, and the sink gets the next batch. No batch is
// delivered twice.
func (c *Collector) deliver(sink Sink, batch []Entry) {
	defer func() {
		if p := recover(); p != nil {
			c.panics.Add(1)
			c.logPanic(fmt.Sprintf("%T", sink), len(batch), p)
		}
	}()
	sink.Take(batch)
}

func (c *Collector) logPanic(name string, records int, p any) {
	now := time.Now()
	if last, ok := c.logged[name]; ok && now.Sub(last) < logEvery {
		return
	}
	c.logged[name] = now
	c.cfg.Log.Error("access log sink panicked; it may have missed records", "sink", name, "records", records,
		"panics", c.panics.Load(), "panic", p, "stack", string(debug.Stack()))
}
