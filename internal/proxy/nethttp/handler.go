package nethttp

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// exchange is one request on its way through the driver.
type exchange struct {
	server  *Server
	w       http.ResponseWriter
	r       *http.Request
	rc      *http.ResponseController
	id      string
	verdict *admit.Verdict

	// head is held while something of a head goes to net/http: 1xx answers come
	// from other goroutines than the final one.
	head     sync.Mutex
	settled  bool // what the final head is; no other goroutine may touch its fields
	answered bool // the final head was given to net/http

	stall  stall
	course course
}

// settle ends 1xx answers: the fields of the final head are set from now on.
func (x *exchange) settle() {
	x.head.Lock()
	defer x.head.Unlock()
	x.settled = true
}

// writeHead gives the final head to net/http.
func (x *exchange) writeHead(status int) {
	x.head.Lock()
	defer x.head.Unlock()
	x.answered, x.course.status = true, status
	x.w.WriteHeader(status)
}

// ServeHTTP answers one request of the data plane.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.running.Add(1)
	defer s.running.Add(-1)
	x := s.newExchange(w, r, new(admit.Verdict), "")
	defer x.end()
	defer x.recover()
	// Otherwise net/http would read a request's body to its end before it sends
	// an answer. HTTP/2 is full duplex without being told.
	_ = x.rc.EnableFullDuplex()
	if err := x.malformed(); err != nil {
		x.unread()
		x.verdict.Close = true
		x.refuse(err)
		return
	}
	if err := x.decide(r.Context()); err != nil {
		x.fail(err)
		return
	}
	x.serve()
}

// ServeDecided serves a request as ServeHTTP does, after another driver has
// read it and had it decided. v must not say that the request has to wait.
//
// w may have the method Trusted() bool, which counts as Config.Trusted, and
// Course, which gives what the record of the request needs; without it none is put.
func (s *Server) ServeDecided(w http.ResponseWriter, r *http.Request, v *admit.Verdict, requestID string) {
	x := s.newExchange(w, r, v, requestID)
	x.goOn()
	defer x.end()
	defer x.recover()
	x.serve()
}

func (s *Server) newExchange(w http.ResponseWriter, r *http.Request, v *admit.Verdict, requestID string) *exchange {
	x := &exchange{server: s, w: w, r: r, rc: http.NewResponseController(w), id: requestID, verdict: v}
	x.stall.reading.end = x.stalledBody
	x.stall.writing.end = func() { _ = x.rc.SetWriteDeadline(time.Unix(1, 0)) }
	return x
}

// stalledBody ends the reading of a body that has stalled. Once the answer has
// begun, a client that is silent may only be listening.
func (x *exchange) stalledBody() {
	x.head.Lock()
	defer x.head.Unlock()
	if !x.answered {
		x.stopReading()
	}
}

// serve does what the verdict says.
func (x *exchange) serve() {
	switch x.verdict.Action {
	case admit.Forward:
		x.forward()
	case admit.Preflight:
		x.course.decision = accesslog.Preflight
		x.ownFields()
		x.answer(http.StatusNoContent, nil)
	default:
		x.refuse(x.verdict.Fault())
	}
}

// malformed returns the error for a head that net/http takes and Keygate does
// not. CONNECT and TRACE are refused before any other check.
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
		// net/http goes by the first of several, and takes an empty one for 0.
		return proxy.Malformed("Content-Length is not one decimal number")
	}
	if strings.Contains(r.RequestURI, " ") {
		// To an upstream of HTTP/1.1 it would be the end of the target.
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

// trusted reports whether the peer's X-Forwarded-* fields are believed.
func (x *exchange) trusted() bool {
	if w, ok := x.w.(interface{ Trusted() bool }); ok {
		return w.Trusted()
	}
	c, ok := x.r.Context().Value(connectionKey{}).(*connection)
	return ok && c.trusted
}

// decide fills the verdict. The error is of a daily cap that could not be asked.
func (x *exchange) decide(ctx context.Context) error {
	h := x.r.Header
	req := admit.Request{
		Method:          x.r.Method,
		Target:          x.r.RequestURI,
		Host:            x.r.Host,
		Authorization:   h.Get("Authorization"),
		Authorizations:  len(h["Authorization"]),
		Origin:          h.Get("Origin"),
		PreflightMethod: h.Get("Access-Control-Request-Method"),
	}
	for {
		x.server.cfg.Admit.Decide(&req, x.verdict)
		if x.id == "" {
			x.open(x.verdict.Now)
		}
		if x.verdict.Action != admit.Wait {
			return nil
		}
		if err := x.server.cfg.Admit.Wait(ctx, x.verdict); err != nil {
			return err
		}
	}
}

// fail answers a request that was not refused by a check but could not be
// served, and logs why.
func (x *exchange) fail(err error) {
	if x.r.Context().Err() != nil { // nobody waits for an answer
		x.abort()
	}
	x.log("request failed", err)
	x.refuse(err)
}

// log writes one line about the request: never a field of it, never its query.
func (x *exchange) log(message string, err error) {
	args := []any{"request_id", x.id, "method", x.r.Method, "path", pathOf(x.r.RequestURI), "error", err}
	if g := x.verdict.Gateway; g != nil {
		args = append(args, "gateway_id", g.ID)
	}
	if k := x.verdict.Key; k != nil {
		args = append(args, "key_id", k.ID())
	}
	x.server.cfg.Log.Warn(message, args...)
}

func pathOf(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return path
}

// recover turns a defect into a 500 with the usual body, or a broken message if
// an answer has begun.
func (x *exchange) recover() {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p)
	default:
		if x.id == "" {
			x.unread()
		}
		x.server.cfg.Log.Error("a request met a defect", "request_id", x.id, "panic", p, "stack", stack())
		if x.answered {
			x.put(accesslog.Failed, x.course.status)
			x.abort()
		}
		x.verdict.Close = true
		x.refuse(proxy.Panicked())
	}
}
