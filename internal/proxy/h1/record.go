package h1

import (
	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/proxy"
)

// endOf returns the end of x for its record. A response that was sent at once ended when
// its head arrived, which saves reading the clock.
func (x *exchange) endOf(r accesslog.Result, status int, out int64) proxy.End {
	e := proxy.End{Result: r, Status: status, BytesOut: out, BytesIn: x.bytesIn()}
	if !x.streaming && x.upload == nil {
		e.At = x.ResponseAt()
	}
	return e
}

// bytesIn returns how many bytes of the request's body were forwarded.
func (x *exchange) bytesIn() int64 {
	if !x.hasBody {
		return 0
	}
	return x.body.Moved()
}

// emitForwarded emits the record of a request to which the upstream has responded.
func (x *exchange) emitForwarded() {
	x.Emit(x.endOf(accesslog.Forwarded, x.attempt.Status(), x.attempt.Moved()))
}

// noteCut records why the sweeper has cut off a response that has begun.
func (x *exchange) noteCut(why cut) {
	if why == cutAccess {
		x.CutBy(x.c.denied)
	}
}

// emitNoResponse emits the record of a request that got no response.
func (x *exchange) emitNoResponse(why cut) step {
	x.EmitNoResponse(why == cutShutdown, x.bytesIn())
	return stepClose
}
