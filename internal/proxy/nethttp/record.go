package nethttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/proxy"
)

// emitStartedLater emits the start record of a request that runs for long.
func (x *exchange) emitStartedLater() {
	x.MarkSent()
	x.emitting.Lock()
	defer x.emitting.Unlock()
	x.timer = time.AfterFunc(proxy.StartedAfter, x.emitStarted)
}

func (x *exchange) emitStarted() {
	x.emitting.Lock()
	defer x.emitting.Unlock()
	x.EmitStarted()
}

// emit emits the access record, once. It is called before the last byte of the response
// goes out (proxy.Exchange.Emit).
func (x *exchange) emit(r accesslog.Result, status int) {
	x.emitting.Lock()
	defer x.emitting.Unlock()
	x.stopTimer()
	var denied *proxy.AccessError
	if errors.As(context.Cause(x.r.Context()), &denied) { // even if the body had just ended
		x.CutBy(denied.Result)
	}
	x.Emit(proxy.End{Result: r, Status: status, BytesIn: x.bytesIn.Load(), BytesOut: x.bytesOut})
}

// stopTimer cancels emitStartedLater. The caller holds x.emitting.
func (x *exchange) stopTimer() {
	if x.timer != nil {
		x.timer.Stop()
	}
}

// end emits the record of a request that has none yet: its response was broken off, or it
// got no response.
func (x *exchange) end() {
	x.noteDenied()
	if x.responded {
		x.emit(accesslog.Forwarded, x.status)
		return
	}
	cut := errors.Is(context.Cause(x.r.Context()), proxy.ErrCut)
	x.emitting.Lock()
	defer x.emitting.Unlock()
	x.stopTimer()
	x.EmitNoResponse(cut, x.bytesIn.Load())
}

// withdraw makes the verdict a refusal of a request that was not sent, and returns its error.
func (x *exchange) withdraw(result accesslog.Result) error {
	x.emitting.Lock()
	defer x.emitting.Unlock()
	return x.Withdraw(result, true)
}

// noteDenied records that the engine has cut the request off because it may not go on, if it has. If
// there is no response, it emits the record.
func (x *exchange) noteDenied() {
	var denied *proxy.AccessError
	if !errors.As(context.Cause(x.r.Context()), &denied) {
		return
	}
	x.emitting.Lock()
	defer x.emitting.Unlock()
	x.stopTimer()
	if x.responded {
		x.CutBy(denied.Result)
	} else {
		x.EmitDenied(denied.Result, x.bytesIn.Load())
	}
}

// setTraceparent sets traceparent for the upstream.
func (x *exchange) setTraceparent(out http.Header) {
	if x.server.cfg.Tracer == nil {
		return
	}
	if value := x.AppendTraceparent(nil); len(value) > 0 {
		out["Traceparent"] = []string{string(value)}
	}
}
