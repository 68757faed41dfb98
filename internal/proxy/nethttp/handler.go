package nethttp

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
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

// ServeHTTP serves one request of the data plane.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.running.Add(1)
	defer s.running.Add(-1)
	x := s.newExchange(w, r, s.begin(r))
	defer x.end()
	defer x.recover()
	// Otherwise net/http would read a request's body to its end before it sends a response.
	// HTTP/2 is always full duplex.
	_ = x.rc.EnableFullDuplex()
	if err := x.malformed(); err != nil {
		x.BeginUndecided(&s.cfg.Config)
		x.Verdict.Close = true
		x.refuse(err)
		return
	}
	if err := x.decide(r.Context()); err != nil {
		if r.Context().Err() != nil { // the client hung up, or a shutdown cut it off
			x.abort()
		}
		x.refuse(err)
		return
	}
	x.serve()
}

// ServeDecided serves a request like ServeHTTP, after another driver has read and decided
// it. The verdict must not be admit.Wait. It emits the access record of e.
func (s *Server) ServeDecided(w http.ResponseWriter, r *http.Request, e *proxy.Exchange) {
	x := s.newExchange(w, r, e)
	defer x.end()
	defer x.recover()
	x.serve()
}

// begin returns the exchange of a request that this driver read itself, and sets r.TLS, which
// net/http does not see.
func (s *Server) begin(r *http.Request) *proxy.Exchange {
	e := &proxy.Exchange{Method: r.Method, Major: uint8(r.ProtoMajor), Minor: uint8(r.ProtoMinor)}
	if d, ok := r.Context().Value(connectionKey{}).(*description); ok {
		e.Client, r.TLS = d.client, d.tls
	}
	if e.Client.Trusted {
		e.ForwardedFor = forwardedFor(r.Header)
	}
	if values := r.Header["Traceparent"]; len(values) == 1 {
		e.Traceparent = []byte(values[0])
	}
	return e
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

// malformed returns the error for a head that net/http accepts and Keygate does not.
// CONNECT and TRACE are refused before any other check.
func (x *exchange) malformed() error {
	r := x.r
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		return nil
	}
	if r.ProtoMajor == 2 {
		for _, host := range r.Header["Host"] {
			if host != r.Host { // RFC 9113, 8.3.1
				return proxy.Malformed("Host and :authority differ")
			}
		}
	}
	if lengths, given := r.Header["Content-Length"]; given && (len(lengths) != 1 || !decimal(lengths[0])) {
		// net/http uses the first of several values, and treats an empty one as 0.
		return proxy.Malformed("Content-Length is not one decimal number")
	}
	if strings.Contains(r.RequestURI, " ") {
		// An HTTP/1.1 upstream would take a space for the end of the target.
		return proxy.Malformed("the target holds a space")
	}
	if len(r.RequestURI) > admit.MaxTarget {
		return proxy.TargetTooLong()
	}
	fields, size := 1, len(r.Method)+len(r.RequestURI)+len(" HTTP/1.1\r\n")+len("Host: \r\n")+len(r.Host)
	for name, values := range r.Header {
		fields += len(values)
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
		}
	}
	fields += len(r.TransferEncoding)
	if len(r.Trailer) > 0 {
		fields++
	}
	if fields > http1.MaxFields || size > http1.MaxHead {
		return proxy.HeadTooLarge()
	}
	return nil
}

func decimal(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// header implements admit.Header.
type header http.Header

// HeaderValue implements admit.Header.
func (h header) HeaderValue(name string) (value string, count int) {
	values := http.Header(h).Values(name)
	if len(values) == 0 {
		return "", 0
	}
	return values[0], len(values)
}

// decide sets the verdict. It fails if the count of a daily cap cannot be read.
func (x *exchange) decide(ctx context.Context) error {
	h := x.r.Header
	req := admit.Request{
		Method:          x.r.Method,
		Target:          x.r.RequestURI,
		Host:            x.r.Host,
		Authorization:   h.Get("Authorization"),
		Authorizations:  len(h["Authorization"]),
		Header:          header(h),
		Origin:          h.Get("Origin"),
		PreflightMethod: h.Get("Access-Control-Request-Method"),
	}
	for {
		x.server.cfg.Admit.Decide(&req, &x.Verdict)
		if !x.Begun() {
			x.Begin(&x.server.cfg.Config, x.Verdict.Now)
		}
		if x.Verdict.Action != admit.Wait {
			return nil
		}
		if err := x.server.cfg.Admit.Wait(ctx, &x.Verdict); err != nil {
			return err
		}
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
		if !x.Begun() {
			x.BeginUndecided(&x.server.cfg.Config)
		}
		err := x.Panicked(p)
		if x.responded {
			x.emit(accesslog.Failed, x.status)
			x.abort()
		}
		x.Verdict.Close = true
		x.refuse(err)
	}
}
