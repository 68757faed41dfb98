package accesslog

import (
	"fmt"
	"runtime/debug"
	"time"
)

// logEvery is the least time between two messages about defects of one sink.
const logEvery = time.Minute

// deliver calls one sink. One that panics keeps the batch from no other; it is
// counted and logged, and gets the next batch again. Nothing is offered twice.
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
	c.cfg.Log.Error("a sink met a defect: it may have missed records of requests", "sink", name, "records", records,
		"defects", c.panics.Load(), "panic", p, "stack", string(debug.Stack()))
}
