package send

import (
	"context"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// maxTries is how often a request is sent at most.
const maxTries = 2

// Client is the client's half of an exchange, which an engine implements. The goroutine that calls
// Attempt.Run calls all methods except the Receiver's.
type Client interface {
	message.Receiver
	// Write writes the request, as far as it has arrived: with Attempt.WriteHead, and then the body
	// over HTTP/1.1 to Attempt.H1, over HTTP/2 to Attempt.Part. whole is set if the whole request
	// was written. Write is called again for another target, and over HTTP/1.1 for a second try.
	Write() (whole bool, err error)
	// Wait calls get, which waits for a connection. It passes a context that ends when the exchange
	// is cut off, and the deadline for the head of the response. If the exchange was cut off, Wait
	// returns an error, and otherwise the error of get.
	Wait(get func(ctx context.Context, until time.Time) error) error
	// Start prepares for the response to a try. Over HTTP/1.1 it is called before anything is sent.
	// Over HTTP/2 it is called after the head and the first sent bytes of Attempt.Part were sent, and
	// starts to forward the rest of the body. An error ends the attempt.
	Start(sent int) error
	// Upload starts to forward the rest of the body over HTTP/1.1, after the first part of the
	// request was sent. err is the error of sending it, or nil.
	Upload(err error)
	// Again prepares to send the request once more after a try that failed with err. It ends
	// what Start and Upload have started. If an upload was among it, over HTTP/2 it sets Attempt.Part to
	// everything of the body that is to be sent again, and Attempt.End, and over HTTP/1.1 it calls
	// H1Try.Resume. If it returns an error, the attempt ends with that error.
	Again(err error) error
}

// Attempt sends a request to a target of its upstream and passes on the response:
//
//	Pick      chooses the target
//	Prepare   writes the request, for an engine that must know first whether it has arrived whole
//	TryOpen   starts a try that needs no waiting, over HTTP/2
//	Run       tries, once more if the target has certainly not processed the request or if that does
//	          no harm, until the response has arrived: at another target if there are several
//	Release   ends the use of the connection after a whole response, and Finish passes on its end
//	Fail      ends an attempt that failed
//
// An Attempt serves one request after another, with Reset between them.
type Attempt struct {
	attemptState
	trip     H1Try
	call     *H2Try           // nil until the first request over HTTP/2
	balance  balance.Attempts // at the targets of the upstream, while balanced is set
	receiver receiver         // of the responses of several targets
}

// attemptState is the state of one request. Reset zeroes it.
type attemptState struct {
	Request
	// Part is the first part of the body over HTTP/2, and End says that nothing follows it.
	Part []byte
	End  bool

	exchange *proxy.Exchange
	pools    *upstream.Pools
	affinity *Affinity
	upstream *snapshot.Upstream
	target   *Target

	balanced  bool           // a request to the upstream's Balance runs
	lone      *balance.Lone  // of the only target of the upstream, while a request to it runs
	began     time.Duration  // when the present try of it began
	unreached bool           // no connection to the target could be made
	answered  bool           // a part of the response went to the client
	failing   balance.Result // the status for which errFailing keeps a response from the client
	timedOut  bool           // the upstream did not respond in time

	tries       int  // that have begun to send, at this target
	elsewhere   bool // an earlier try was at another target, or was to be
	written     bool // the request was written for this try
	whole       bool // as Client.Write has returned it
	multiplexed bool // this try is over HTTP/2
	waited      bool // time has passed since the decision
	open        bool // this try has begun, and Run only receives the response
	sent        bool // something of the request was sent, in this try or before
	first       int  // how much of Part was sent with the head

	conn  *upstream.H1Conn // of a try over HTTP/1.1, until it is released
	bound bool             // it was bound to the client's connection before
	binds bool             // it will be after the exchange
	parts bool             // it was bound to the client's connection, and is closed
}

// Init prepares an Attempt that takes its memory from b.
func (a *Attempt) Init(b *message.Buffers) { a.trip.init(b) }

// Reset clears all state of a request.
func (a *Attempt) Reset() {
	a.attemptState, a.balance, a.receiver = attemptState{}, balance.Attempts{}, receiver{}
	a.trip.reset()
	if a.call != nil {
		a.call.Close()
		a.call.Reset()
	}
}

// Pick begins the attempt with the target for the request of x. authorization is the request's. The
// error is the response to the client.
func (a *Attempt) Pick(pools *upstream.Pools, affinity *Affinity, x *proxy.Exchange, authorization string) (err error) {
	a.exchange, a.pools, a.affinity, a.upstream, a.binds = x, pools, affinity, x.Verdict.Upstream, proxy.Binds(authorization)
	if b := a.upstream.Balance; b != nil && !b.Dropped() {
		if err = a.begin(); err != nil {
			a.conclude(balance.Canceled, err)
		}
		return err
	}
	if err = a.chooseFirst(); err != nil {
		a.conclude(balance.Canceled, err)
	}
	return err
}

// SpeaksHTTP1 reports whether requests may go to the target over HTTP/1.1, as an upgrade must.
func (a *Attempt) SpeaksHTTP1() bool { return a.target.pool != nil }

// Multiplexed reports whether the request goes to the target over HTTP/2. This is known once the
// request is written.
func (a *Attempt) Multiplexed() bool { return a.multiplexed }

// multiplexes reports whether the request should go over HTTP/2. Such a connection carries requests of
// many clients, so it cannot be bound to one client.
func (a *Attempt) multiplexes() bool {
	t := a.target
	return t.calls != nil && !t.calls.OnlyHTTP1() && (t.pool == nil || !a.Upgrade && !a.binds && !a.affinity.Has(t.pool))
}

// Prepare writes the request for the first try and reports whether it has arrived whole. The error
// is what Client.Write returned.
func (a *Attempt) Prepare(c Client) (whole bool, err error) {
	a.multiplexed = a.multiplexes()
	err = a.write(c)
	return a.whole, err
}

func (a *Attempt) write(c Client) (err error) {
	a.written = true
	a.whole, err = c.Write()
	return err
}

// WriteHead writes the head of the request.
func (a *Attempt) WriteHead() {
	if !a.multiplexed {
		a.trip.write(&a.Request, a.target)
		return
	}
	if a.call == nil {
		a.call = &H2Try{}
	}
	a.call.write(&a.Request, a.target, proxy.Confirmer{Exchange: a.exchange})
}

// Framing returns the framing of the body over HTTP/1.1, and nil over HTTP/2, which has frames of its own.
func (a *Attempt) Framing() *message.Framing {
	if a.multiplexed {
		return nil
	}
	return &a.trip.body
}

// WriteReceived writes what was received of a body together with its head, as r recodes it for Framing.
// used is how much of received belongs to the body.
func (a *Attempt) WriteReceived(r *message.Recoder, received []byte) (used int, err error) {
	if !a.multiplexed {
		return a.trip.appendReceived(r, received)
	}
	room := a.trip.buffer().Data[:0]
	room = append(room, received...)
	p, err := r.Step(room, 0, len(room))
	if err != nil {
		return 0, err
	}
	a.Part = room[p.From:p.To]
	return p.Used, nil
}

// TryOpen starts the first try if the target takes the request at once over HTTP/2, else it returns
// nil. It does not block. The caller sends the request, by Flush of later. The caller calls Start of
// the client with sent, and then Await or Run.
func (a *Attempt) TryOpen(c Client) (sent int, later upstream.Flusher, err error) {
	if a.multiplexed = a.multiplexes(); !a.multiplexed {
		return 0, nil, nil
	}
	if err := a.write(c); err != nil {
		return 0, nil, a.Fail(err)
	}
	if sent, later = a.call.tryOpen(a.target.calls, a.Part, a.End); later != nil {
		a.started()
		a.open, a.first = true, sent
	}
	return sent, later, nil
}

// Await makes w be called when Run can go on, after TryOpen of a whole request. It reports false if
// Run can go on now.
func (a *Attempt) Await(w Waiter) bool { return a.call.Await(w) }

// Run sends the request, unless TryOpen did, and passes the response to c. It returns when the whole
// body has arrived, or a tunnel begins. The error comes from c, from the response to the client,
// from the second look (a *proxy.AccessError) or from the connection. Lost says whether the client
// cannot be reached.
func (a *Attempt) Run(c Client) error {
	for {
		var err error
		if !a.open {
			err = a.start(c)
		}
		if err == nil {
			err = a.receive(c)
		}
		switch {
		case err == nil:
			return nil
		case a.hasOthers():
			if !a.mayMove(a.resultOf(err)) {
				return err
			}
			if err := a.move(c, err); err != nil {
				return err
			}
		case !a.open || !a.mayRepeat():
			return err
		default:
			if err := c.Again(err); err != nil {
				return err
			}
			a.repeat()
		}
	}
}

// start starts a try: over HTTP/2 if the target takes that, and otherwise over HTTP/1.1.
func (a *Attempt) start(c Client) error {
	a.unreached = false
	if !a.written && a.tries == 0 {
		a.multiplexed = !a.trip.resumed && a.multiplexes()
	}
	if a.multiplexed {
		err := a.startH2(c)
		if errors.Is(err, upstream.ErrNoHTTP2) || errors.Is(err, upstream.ErrNoConnect) {
			a.unreached = false // there was a connection
		}
		switch {
		case errors.Is(err, upstream.ErrNoConnect) && a.target.pool == nil:
			return proxy.NoWebSocket()
		case errors.Is(err, upstream.ErrNoHTTP2), errors.Is(err, upstream.ErrNoConnect): // most servers take a WebSocket only over HTTP/1.1
			a.multiplexed, a.written, a.waited = false, false, true
			a.trip.dropBuffer()
		default:
			return err
		}
	}
	return a.startH1(c)
}

// startH2 starts a try over HTTP/2.
func (a *Attempt) startH2(c Client) error {
	if !a.written {
		if err := a.write(c); err != nil {
			return err
		}
	}
	var later upstream.Flusher
	if a.first, later = a.call.tryOpen(a.target.calls, a.Part, a.End); later != nil {
		later.Flush()
	} else if err := a.openH2(c); err != nil {
		return err
	}
	a.started()
	a.open = true
	return c.Start(a.first)
}

// openH2 opens the stream of a try over HTTP/2, and waits if necessary.
func (a *Attempt) openH2(c Client) error {
	opened := false
	err := c.Wait(func(ctx context.Context, until time.Time) (err error) {
		a.first, err = a.call.Open(ctx, until, a.target.calls, a.Part, a.End)
		opened, a.unreached = err == nil, err != nil
		return err
	})
	if err != nil {
		if opened { // but the exchange was cut off
			a.started()
		}
		a.call.Close()
		return err
	}
	a.exchange.MarkSent()
	return nil
}

// startH1 starts a try over HTTP/1.1.
func (a *Attempt) startH1(c Client) error {
	if err := a.acquire(c); err != nil {
		return err
	}
	// Not earlier: a request that waits for a connection holds no buffer, unless Prepare has written it.
	if !a.written {
		if err := a.write(c); err != nil {
			return err
		}
	}
	a.trip.begin(a.conn, a.to(c), a.exchange.Method == "HEAD")
	a.conn.Carry(a.Request.Body)
	if !a.whole && a.keepsBody() {
		a.trip.keep()
	}
	a.open = true
	if err := c.Start(0); err != nil {
		return err
	}
	a.started()
	if !a.whole {
		c.Upload(a.trip.Send())
	}
	return nil
}

// acquire gets a connection for a try over HTTP/1.1, a new one for a second try, and makes the second
// look.
func (a *Attempt) acquire(c Client) error {
	pool := a.target.pool
	a.unreached = false
	if a.tries == 0 && !a.elsewhere {
		if a.conn = a.affinity.Take(pool); a.conn != nil {
			a.bound = true
		} else {
			a.conn = pool.Take(a.affinity.lastOf(a.target).Load())
		}
		if a.conn != nil {
			return a.confirm(a.waited)
		}
	}
	err := c.Wait(func(ctx context.Context, until time.Time) (err error) {
		if a.tries == 0 && !a.elsewhere {
			a.conn, err = pool.Acquire(ctx, until, nil)
		} else {
			a.conn, err = pool.Connect(ctx, until)
		}
		a.unreached = err != nil
		return err
	})
	if err != nil {
		a.discard()
		return err
	}
	a.exchange.MarkSent()
	return a.confirm(true)
}

// confirm makes the second look, directly before the request is sent over conn.
func (a *Attempt) confirm(waited bool) error {
	denied := a.exchange.Confirm(waited)
	if denied == nil {
		return nil
	}
	if a.bound {
		a.affinity.Keep(a.conn, a.upstream.Name, a.balance.Target())
	} else {
		a.conn.Release()
	}
	a.conn = nil
	return denied
}

// started notes that a try has begun to send.
func (a *Attempt) started() {
	a.tries++
	a.sent = true
	a.exchange.MarkAttempt(a.target.of.Base.Host)
}

// receive passes on the response to a try.
func (a *Attempt) receive(c Client) error {
	if a.multiplexed {
		return a.call.Run(a.to(c))
	}
	return a.trip.run()
}

// mayRepeat classifies the failure of a try. It reports whether the request may be sent again. It
// may if the server has certainly not processed it, or if a connection that had carried another
// request failed before the first byte of a response and repeating the request does no harm.
func (a *Attempt) mayRepeat() bool {
	method := a.exchange.Method
	switch {
	case a.tries == maxTries || a.Lost():
		return false
	case a.multiplexed:
		return a.call.Safe() || a.call.Stale() && proxy.Retryable(method, a.Request.Body)
	}
	return !a.bound && !a.trip.got && a.conn.Reused() && proxy.Retryable(method, a.Request.Body && a.WebSocketKey == "")
}

// repeat prepares the next try.
func (a *Attempt) repeat() {
	a.open = false
	if a.multiplexed {
		a.call.Close()
		a.call.Again()
		return
	}
	a.discard()
	a.trip.reset()
	a.written = false
}

// Conn returns the connection of a try over HTTP/1.1, or nil.
func (a *Attempt) Conn() *upstream.H1Conn { return a.conn }

// H1 returns the try over HTTP/1.1, or nil over HTTP/2.
func (a *Attempt) H1() *H1Try {
	if a.multiplexed {
		return nil
	}
	return &a.trip
}

// H2 returns the try over HTTP/2, or nil over HTTP/1.1.
func (a *Attempt) H2() *H2Try {
	if !a.multiplexed {
		return nil
	}
	return a.call
}

// Open reports whether a try has begun, and was not ended.
func (a *Attempt) Open() bool { return a.open }

// Sent reports whether something of the request was sent, in this try or in the try before.
func (a *Attempt) Sent() bool { return a.sent }

// called reports whether a try over HTTP/2 has begun.
func (a *Attempt) called() bool { return a.multiplexed && a.tries > 0 }

// Lost reports whether Run failed because of its client.
func (a *Attempt) Lost() bool {
	if a.called() {
		return a.call.Lost()
	}
	return a.trip.lost != nil
}

// Status returns the status of the response, whose head has arrived.
func (a *Attempt) Status() int {
	if a.called() {
		return a.call.Status()
	}
	return a.trip.reader.Response().Status
}

// Moved returns how many bytes of the response's body have arrived.
func (a *Attempt) Moved() int64 {
	if a.called() {
		return a.call.Moved()
	}
	return a.trip.reader.Body().Moved()
}

// Bare reports whether the response over HTTP/2 has ended with its head, so that it has neither a body
// nor trailers.
func (a *Attempt) Bare() bool { return a.called() && a.call.Bare() }

// NoteHead notes whether a response binds the connection to the client's. The client calls it with
// the final head.
func (a *Attempt) NoteHead(head []byte, r *http1.Response) {
	a.binds = a.binds || a.bound || boundBy(head, r)
}

// Parts reports whether the client's connection must close, because the upstream connection that is
// bound to it will close: the response, whose head has arrived, does not keep it.
func (a *Attempt) Parts() bool {
	return !a.multiplexed && (a.binds || a.bound) && !a.trip.reader.Keeps()
}

// Parted reports whether the client's connection must close after the attempt, because the upstream
// connection that was bound to it did.
func (a *Attempt) Parted() bool { return a.parts }

// Tunnel returns what has arrived of the protocol to which the upstream has switched. It is valid until
// the attempt ends.
func (a *Attempt) Tunnel() (rest []byte) { return a.trip.buf.Data[a.trip.from:a.trip.end] }

// Tunnels reports whether the upstream has switched protocols.
func (a *Attempt) Tunnels() bool { return !a.multiplexed && a.trip.reader.Phase == message.ReadTunnel }

// Torn returns an error if the body of the response has ended with the connection and is not whole. It
// must be called after the upload of the request's body has ended.
func (a *Attempt) Torn() error {
	if !a.multiplexed && a.trip.torn() {
		return message.ErrTruncated
	}
	return nil
}

// TimedOut notes, before Fail, that the upstream did not respond in time. If the client has given it that time, this says nothing
// about the upstream.
func (a *Attempt) TimedOut() { a.timedOut = !a.exchange.Late() }

// Release ends the use of the connection after Run has succeeded. intact is set if the whole request
// was sent and the exchange was not cut off: only then may the connection carry another request. alone
// is set if it cannot, and it was bound to the client's connection or would be.
func (a *Attempt) Release(intact bool) (alone bool) {
	at := a.balance.Target()
	a.conclude(balance.OK, nil)
	if a.multiplexed {
		a.call.Close()
		return false
	}
	up, binds := a.conn, a.binds || a.bound
	a.affinity.lastOf(a.target).Store(up)
	switch {
	case !intact || !a.trip.reusable():
		a.discard()
		return binds
	case binds:
		a.affinity.Keep(up, a.upstream.Name, at)
	default:
		a.trip.release()
	}
	a.conn, a.trip.conn = nil, nil
	return false
}

// Finish passes the end of the response to the client. The connection may carry another request by
// then.
func (a *Attempt) Finish(to message.Receiver) error {
	if a.multiplexed {
		a.trip.dropBuffer()
		return a.call.Finish(to)
	}
	return a.trip.finish()
}

// Relay passes a response that has arrived whole to a receiver, within Waiter.Relay.
func (a *Attempt) Relay(to message.Receiver) error {
	if err := a.call.Run(a.to(to)); err != nil {
		a.conclude(a.resultOf(err), err)
		return err
	}
	a.conclude(balance.OK, nil)
	return a.call.Finish(to)
}

// Relays reports, within Waiter.Relay, whether Relay may be called: the response will not lead to another attempt.
func (a *Attempt) Relays() bool {
	if !a.hasOthers() {
		return true
	}
	r := &a.call.in.response
	return !resultOfHead(r.Text, &r.Response).Failed()
}

// Fail ends an attempt that failed with err. It adds the upstream's address to the error, if a try has
// begun and the client was not lost.
func (a *Attempt) Fail(err error) error {
	a.conclude(a.resultOf(err), err)
	if err != nil && a.open && !a.Lost() {
		if a.multiplexed {
			err = upstream.At(a.call.Address(), err)
		} else {
			err = upstream.At(a.conn.Address(), err)
		}
	}
	if a.multiplexed && a.call != nil {
		a.call.Close()
	}
	a.discard()
	a.trip.dropBuffer()
	a.open = false
	return err
}

// Detach gives the connection of a tunnel to the caller, who calls ended when the tunnel has ended. ending says when it must end
// because of its target; it may be nil.
func (a *Attempt) Detach() (up *upstream.H1Conn, ending *balance.Ending, ended func()) {
	up = a.conn
	a.conn, a.trip.conn = nil, nil
	if lone := a.lone; lone != nil {
		a.lone = nil
		return up, lone.Ending(), lone.End
	}
	if !a.balanced {
		return up, nil, func() {}
	}
	b, x := a.balance, a.exchange.Clock()
	a.balanced, a.balance = false, balance.Attempts{}
	return up, b.Target().Ending(), func() {
		b.End(x(), balance.OK)
		b.Finish(x())
	}
}

// discard closes the connection, if there is one.
func (a *Attempt) discard() {
	if a.conn != nil {
		a.conn.Discard()
		a.conn, a.trip.conn, a.parts = nil, nil, a.bound
	}
}
