package h1

import (
	"net"
	"net/url"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// Trips makes the Trips of an engine for another version of HTTP, which share their memory.
// It is safe for concurrent use.
type Trips struct {
	upstreams *upstream.Pools
	pools     pools
}

// NewTrips returns a Trips for the upstreams of p.
func NewTrips(p *upstream.Pools) *Trips { return &Trips{upstreams: p} }

// Origin is what forwarding to one upstream_url needs, computed once.
type Origin struct{ origin *origin }

// Origin returns the origin of a gateway's upstream. The error is the response to the client.
func (t *Trips) Origin(g *snapshot.Gateway) (Origin, error) {
	o, err := newOrigin(t.upstreams, g)
	return Origin{o}, err
}

// Base returns the upstream_url. A gateway with another one has another origin. It is nil for
// the zero Origin.
func (o Origin) Base() *url.URL {
	if o.origin == nil {
		return nil
	}
	return o.origin.base
}

// Pool returns the connections over HTTP/1.1. It is nil if the scheme is h2c.
func (o Origin) Pool() *upstream.H1Pool { return o.origin.pool }

// Multiplexed returns the connections over HTTP/2, if the scheme is h2c or https, and
// otherwise nil.
func (o Origin) Multiplexed() *upstream.H2Pool { return o.origin.calls }

// NewCall returns a Call.
func (t *Trips) NewCall() *Call { return &Call{} }

// Trip is the upstream half of an exchange whose client's half belongs to another engine: it
// writes the request for an HTTP/1.1 upstream and reads the response.
//
//	Write, AppendBody…, EndBody   the request, as far as it is known
//	Begin                         with a connection of Origin.Pool
//	Send                          sends what was written, if more of the body is to come; Run
//	                              does so otherwise
//	Run                           reads the response for a Receiver, to the end of its body
//	Finish                        the end of the response, for the Receiver
//
// A Trip serves one request after another, with Reset between them.
type Trip struct {
	trip   roundTrip
	writer requestWriter
}

// NewTrip returns a Trip.
func (t *Trips) NewTrip() *Trip {
	r := &Trip{}
	r.trip.pools = &t.pools
	r.trip.init()
	return r
}

// Reset clears all state of a request.
func (t *Trip) Reset() {
	t.trip.reset()
	t.writer = requestWriter{}
}

// TripRequest is a request for a Trip.
type TripRequest struct {
	Head   *http1.Request
	Text   []byte // what the spans of Head refer to
	Origin Origin
	// Hop describes the request, except for the fields that come from Head.
	Hop proxy.Hop
	// WebSocketKey, unless it is empty, makes the request ask for a WebSocket with this
	// Sec-WebSocket-Key. See NewWebSocketKey.
	WebSocketKey string
	// Confirm is asked before a Call opens its stream. A Trip does not use it.
	Confirm upstream.Confirmer
	// Trusted is set if a trusted proxy sent the request.
	Trusted bool
	// Trace appends the value of traceparent in place of the client's. Nil forwards the
	// client's.
	Trace func(dst []byte) []byte
}

// Write writes the head. A body without a length will be chunked.
func (t *Trip) Write(r *TripRequest) {
	t.writer = r.writer()
	t.trip.out = t.writer.append(t.trip.buffer().data[:0], &t.trip.body)
}

func (r *TripRequest) writer() requestWriter {
	return requestWriter{
		req: r.Head, buf: r.Text, verdict: r.Hop.Verdict, origin: r.Origin.origin, hop: r.Hop, trusted: r.Trusted, trace: r.Trace,
		upgrade: r.WebSocketKey != "", webSocketKey: r.WebSocketKey,
	}
}

// AppendBody appends data of the body to what will be sent. The error reports a body that is not
// what the head declares; the request must not be sent then.
func (t *Trip) AppendBody(data []byte) (err error) {
	t.trip.out, err = t.trip.body.appendData(t.trip.out, data)
	return err
}

// EndBody appends the end of the body with its trailers, which are spans of text. The error is as for
// AppendBody.
func (t *Trip) EndBody(text []byte, trailers []http1.Field) error {
	end, err := t.trip.body.finish(text, trailers)
	t.trip.out = append(t.trip.out, end...)
	return err
}

// Begin prepares to exchange the request over a connection, which stays the caller's, and to
// pass the response to a Receiver. isHead is set for a HEAD request.
func (t *Trip) Begin(conn *upstream.H1Conn, to Receiver, isHead bool) {
	t.trip.restart(isHead)
	t.trip.conn, t.trip.to = conn, to
}

// Send sends what was written so far. An error is not the end: the upstream may have
// responded before it closed the connection.
func (t *Trip) Send() error { return t.trip.write() }

// SendData sends more data of the body. Another goroutine may call it while Run runs. room is
// memory for it; the result has what was made of it. If the body is not what the head declares, Run
// fails.
func (t *Trip) SendData(conn *upstream.H1Conn, room, data []byte) ([]byte, error) {
	room, err := t.trip.body.appendData(room[:0], data)
	return room, t.send(conn, room, err)
}

// SendEnd sends the end of the body, like SendData.
func (t *Trip) SendEnd(conn *upstream.H1Conn, text []byte, trailers []http1.Field) error {
	end, err := t.trip.body.finish(text, trailers)
	return t.send(conn, end, err)
}

// send sends a part of the body, which was framed with the error err.
func (t *Trip) send(conn *upstream.H1Conn, part []byte, err error) error {
	if err != nil {
		conn.Interrupt()
		return err
	}
	if len(part) > 0 {
		_, err = conn.Write(part)
	}
	return err
}

// Run sends what was written, unless Send did, and passes the response to the Receiver. It
// returns when the whole body has arrived; Finish passes on the end. After an error, Lost says
// whose it is.
func (t *Trip) Run() error { return t.trip.run() }

// Lost reports whether Run failed because of the Receiver.
func (t *Trip) Lost() bool { return t.trip.lost != nil }

// Responding reports whether a byte of the response has arrived.
func (t *Trip) Responding() bool { return t.trip.got }

// Reusable reports whether the connection can serve another request after Run, and after an upload
// whose calls have all succeeded.
func (t *Trip) Reusable() bool { return t.trip.reusable() }

// Torn returns an error if the body of the response has ended with the connection and is not whole. An upload has
// ended.
func (t *Trip) Torn() error {
	if t.trip.torn() {
		return errTruncated
	}
	return nil
}

// Release ends the use of the connection, which is Reusable. After that it is no longer the caller's.
func (t *Trip) Release() { t.trip.release() }

// Status returns the status of the response, whose head has arrived.
func (t *Trip) Status() int { return t.trip.reader.resp.Status }

// Moved returns how many bytes of the response's body have arrived.
func (t *Trip) Moved() int64 { return t.trip.reader.body.moved }

// Tunnel reports whether the upstream has switched protocols, and returns what has arrived of the
// new one, which is valid until DropBuffer.
func (t *Trip) Tunnel() (rest []byte, ok bool) {
	if t.trip.reader.phase != readTunnel {
		return nil, false
	}
	return t.trip.buf.data[t.trip.from:t.trip.end], true
}

// Finish passes the end of the response to the Receiver. The connection may serve another
// request by then.
func (t *Trip) Finish() error { return t.trip.finish() }

// DropBuffer frees the buffer of a response that is not passed on.
func (t *Trip) DropBuffer() { t.trip.dropBuffer() }

// EachTrailer calls yield with each field of a response's trailers that may be forwarded
// to the client.
func EachTrailer(section []byte, trailers []http1.Field, yield func(name, value []byte)) {
	for i := range trailers {
		f := &trailers[i]
		if name := f.Name.Of(section); mayTrail(name, f.ID, true, nil) {
			yield(name, f.Value.Of(section))
		}
	}
}

// TrailerNames returns the names in the Trailer field of a response's head whose fields may be forwarded to
// the client, as a list, or "".
func TrailerNames(head []byte, fields []http1.Field) string {
	return proxy.Text(appendNames(nil, head, fields, true, nil))
}

// EachResponseField calls yield with each field of a response's head that is forwarded to
// the client, whose response carries the fields of drop itself. kept is the set of those
// that have a Name.
func EachResponseField(head []byte, r *http1.Response, drop proxy.Fields, yield func(f *http1.Field)) (kept proxy.Fields) {
	fields := r.Fields()
	named := namesOf(head, fields, r.Named())
	for i := range fields {
		f := &fields[i]
		if drop.Has(f.ID) || named.has(f) || setsSession(f, head) {
			continue
		}
		kept |= 1 << f.ID
		yield(f)
	}
	return kept
}

// Acknowledged returns a number that grows with the bytes that the peer of a connection has
// acknowledged or sent. It is 0 where that cannot be seen.
func Acknowledged(nc net.Conn) (moved uint64) {
	tcp := below(nc)
	if tcp == nil {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { moved, _, _ = traffic(fd) }) // closed: nothing moves
	}
	return moved
}

// HasClosed reports whether the peer of a connection has closed its sending side, or the
// connection is broken, even if bytes that the peer sent have not been read. It is false on
// systems where that cannot be found out.
func HasClosed(nc net.Conn) (closed bool) {
	tcp := below(nc)
	if tcp == nil {
		return false
	}
	raw, err := tcp.SyscallConn()
	return err == nil && (raw.Control(func(fd uintptr) { closed = isClosed(fd) }) != nil || closed)
}

// Loops reports whether a Via field of a request names this instance.
func Loops(text []byte, fields []http1.Field, instance string) bool {
	return loops(text, fields, instance)
}
