package nethttp

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/proxy"
)

// exchange is one request with its response on its way through the driver.
type exchange struct {
	*proxy.Exchange
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	rc     *http.ResponseController

	// head is held while part of a head is passed to net/http: 1xx responses and the final
	// one come from different goroutines.
	head      sync.Mutex
	settled   bool // the final head is decided; no other goroutine may change its fields
	responded bool // the final head was passed to net/http
	status    int  // of the final head; 0 before

	stall    stall
	bytesOut int64        // of the response's body
	bytesIn  atomic.Int64 // of the request's body

	emitting sync.Mutex // held while a record is emitted
	timer    *time.Timer
}

// settle prevents 1xx responses from being sent from now on, so that the fields of the
// final head can be set.
func (x *exchange) settle() {
	x.head.Lock()
	defer x.head.Unlock()
	x.settled = true
}

// writeHead passes the final head to net/http.
func (x *exchange) writeHead(status int) {
	x.head.Lock()
	defer x.head.Unlock()
	x.responded, x.status = true, status
	x.w.WriteHeader(status)
}

// ServeDecided serves a request that an engine has read and decided. The verdict must not be
// admit.Wait. It emits the access record of e.
func (s *Server) ServeDecided(w http.ResponseWriter, r *http.Request, e *proxy.Exchange) {
	x := s.newExchange(w, r, e)
	defer x.end()
	defer x.recover()
	x.serve()
}

func (s *Server) newExchange(w http.ResponseWriter, r *http.Request, e *proxy.Exchange) *exchange {
	x := &exchange{Exchange: e, server: s, w: w, r: r, rc: http.NewResponseController(w)}
	x.stall.reading.end = x.stalledBody
	x.stall.writing.end = func() { _ = x.rc.SetWriteDeadline(time.Unix(1, 0)) }
	return x
}

// stalledBody stops reading a body that has stalled. Once the response has begun, a client
// that sends nothing may still be receiving.
func (x *exchange) stalledBody() {
	x.head.Lock()
	defer x.head.Unlock()
	if !x.responded {
		x.stopReading()
	}
}

// serve acts on the verdict.
func (x *exchange) serve() {
	switch x.Verdict.Action {
	case admit.Forward:
		x.forward()
	case admit.Preflight:
		x.Result = accesslog.Preflight
		x.ownFields()
		x.respond(http.StatusNoContent, nil)
	default:
		x.refuse(x.Verdict.Fault())
	}
}

// recover turns a panic into a 500 with the usual body, or breaks off the response if it
// has begun.
func (x *exchange) recover() {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p)
	default:
		err := x.Panicked(p)
		if x.responded {
			x.emit(accesslog.Failed, x.status)
			x.abort()
		}
		x.Verdict.Close = true
		x.refuse(err)
	}
}
