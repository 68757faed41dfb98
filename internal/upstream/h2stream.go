package upstream

import (
	"context"
	"io"

	"github.com/keygate/keygate/internal/http2"
)

// H2Exchange handles the events of an exchange over an H2Stream. Its methods must not block. All
// except WriteHead may call H2Pool.TryOpen, and the methods of H2Stream except Send.
//
// The reader of the connection calls Fail and the methods that begin with Take, one after the
// other, in the order of arrival. Their arguments are valid until they return. The response is
//
//	TakeInterim*  TakeHead  TakeData*  TakeTrailers?
//
// and ends with the call whose end is set, or with TakeTrailers. Fail may be called at any time
// before the end, and no other call follows it. Settle follows when everything that has arrived was
// passed on, so that an exchange can act once on all of it.
type H2Exchange interface {
	// WriteHead adds the request's pseudo-header fields and then its fields to w, with
	// Field and FieldString. It may call no other method of w. It is called as soon as there
	// is room for the request, perhaps by another goroutine, and while locks of the pool are
	// held: it must not wait for a lock under which methods of a stream or the pool are called.
	WriteHead(w *http2.Conn)
	// TakeInterim takes the head of an interim response, 1xx.
	TakeInterim(r *http2.Response)
	// TakeHead takes the head of the final response.
	TakeHead(r *http2.Response, end bool)
	// TakeData takes data of the body, which is not empty unless end is set. The server
	// may send more than http2.StreamWindow bytes only as H2Stream.Consumed says.
	TakeData(b []byte, end bool)
	// TakeTrailers takes the trailers and ends the response.
	TakeTrailers(t *http2.TrailerFields)
	// Settle is called on the reader after calls of the methods that begin with Take, when
	// nothing more has arrived for now. over means that request and response have both
	// ended. The exchange is over then, and the owner may reuse the memory of the exchange and of
	// the stream from within the call.
	//
	// When the reader has passed on everything that has arrived, it calls Flush of the result
	// unless that is nil.
	Settle(over bool) Flusher
	// CanSend is called, on another goroutine, when SendData has sent less than it was
	// given and may now send more, or has nothing to wait for any more.
	CanSend()
	// Fail is called if the exchange has failed. The exchange is then over. safe means that the
	// server has certainly not processed any of the request, so that the request may be sent again,
	// whatever its method.
	Fail(err error, safe bool)
}

// Flusher sends output that was held back so that it could be sent together with the output of others.
type Flusher interface {
	// Flush sends what there is to be sent. It does not block.
	Flush()
}

// H2Stream is one exchange over a connection of an H2Pool. Its zero value is ready for
// H2Pool.Open. Its methods are safe for concurrent use from then on. They do not block, except
// Send. They do nothing once the exchange is over: after a call of Fail, Close or Reset, or after
// Settle has said so.
type H2Stream struct {
	conn *h2Conn
	id   uint32
	ex   H2Exchange
	at   int64 // where its head begins in the output of the connection

	first int // bytes of H2Request.Body that were sent

	// The fields below are guarded by conn.mu.
	open     bool
	stale    bool // the connection failed, and had carried another stream before
	head     bool // the final head has arrived
	ended    bool // the response has ended
	inNews   bool // is in conn.news
	wanting  bool // is in conn.wanting
	blocking bool // Send waits for more, not CanSend
	more     chan struct{}

	prev, next *H2Stream // in the list of conn
}

// First returns how many bytes of H2Request.Body were sent. The rest goes with SendData or Send.
func (s *H2Stream) First() int { return s.first }

// Address returns the server's network address.
func (s *H2Stream) Address() string { return s.conn.slot.conn.RemoteAddr().String() }

// Stale reports whether the exchange failed because its connection failed, and the connection had
// carried another exchange before: perhaps the server had closed it before it got the request.
func (s *H2Stream) Stale() bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.stale
}

// Consumed lets the server send n more bytes of the body. The exchange calls it when it is done
// with n bytes that it got from TakeData.
func (s *H2Stream) Consumed(n int) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.open {
		c.http.Consumed(s.id, n)
		c.flush()
	}
}

// SendData sends data of the request's body: as much as the server's windows and the memory
// for what the connection sends allow. It returns how much that is, and does not keep b. end says
// that neither data nor trailers follow b. If n is less than len(b), the caller sends the rest
// after CanSend, which is called once. ok is false if nothing more can be sent, because the
// exchange is over or the server has stopped reading the request.
func (s *H2Stream) SendData(b []byte, end bool) (n int, ok bool) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sendData(s, b, end, false)
}

// Send does the same as SendData for goroutines: it blocks until it has sent all of b or ctx ends.
// The error is ctx.Err(), or io.ErrClosedPipe if nothing more can be sent. Only one goroutine may
// call it at a time, and not together with SendData.
func (s *H2Stream) Send(ctx context.Context, b []byte, end bool) error {
	c := s.conn
	for {
		c.mu.Lock()
		if s.more == nil {
			s.more = make(chan struct{}, 1)
		}
		n, ok := c.sendData(s, b, end, true)
		more := s.more
		c.mu.Unlock()
		if b = b[n:]; !ok {
			return io.ErrClosedPipe
		}
		if len(b) == 0 {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// SendTrailers sends the trailers that write adds, as WriteHead adds the head, and ends the
// request. It must follow SendData that has sent everything. ok is as for SendData.
func (s *H2Stream) SendTrailers(write func(w *http2.Conn)) (ok bool) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.usable(s) || !c.http.BeginHead(s.id) {
		return false
	}
	write(c.http)
	c.http.EndHead(true)
	c.flush()
	return true
}

// Close ends the exchange, and resets the stream if request and response have not both ended.
// Every exchange ends with Close, Reset, Fail or Settle. No callback begins after that. Close reports
// whether no callback is running, so that the memory of stream and exchange may be reused. If a
// callback calls Close, that callback counts as running.
func (s *H2Stream) Close() (quiet bool) { return s.close(false, http2.NoError) }

// Reset is Close that resets the stream with the given code.
func (s *H2Stream) Reset(code http2.Code) (quiet bool) { return s.close(true, code) }

func (s *H2Stream) close(reset bool, code http2.Code) (quiet bool) {
	c := s.conn
	c.mu.Lock()
	quiet = c.delivering != s && c.offered != s
	was := s.open
	if was {
		if reset {
			c.http.Reset(s.id, code)
		}
		c.remove(s)
		c.flush()
	}
	c.mu.Unlock()
	if was {
		c.ended()
	}
	return quiet
}
