package send

import (
	"errors"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// This file is the part of an Attempt that concerns upstreams with several targets (targets.md, sections 2 to 4).

// errNoHTTP1 is the cause of a 502 for a body that was sent in part over HTTP/1.1, and whose next target speaks HTTP/2 only.
var errNoHTTP1 = errors.New("the target does not speak HTTP/1.1, in which the request was begun")

// errFailing keeps a response from the client that leads to an attempt at another target.
var errFailing = errors.New("send: the response leads to another attempt")

// now returns the time as package balance has it.
func (a *Attempt) now() time.Duration { return a.exchange.Mono() }

// begin begins the request to the upstream's Balance and chooses the first target.
func (a *Attempt) begin() error {
	x, b := a.exchange, &a.balance
	b.Value, b.HasValue = x.HashValue()
	b.Small = balance.IsSmall(x.Method, x.Length())
	now := a.now()
	b.Begin(now, a.upstream.Balance)
	a.balanced = true
	return a.choose(now)
}

// choose chooses the target of the next try, which begins now. The connection that is bound to the client's decides where it is.
func (a *Attempt) choose(now time.Duration) (err error) {
	b := &a.balance
	a.began = now
	t := a.affinity.At()
	if a.elsewhere || t == nil || !b.Prefer(t) {
		t = b.Pick(now)
	}
	if a.elsewhere || t == nil {
		a.exchange.NoteUntried(b)
	}
	switch {
	case t == nil && a.upstream.Balance.Dropped(): // since the request was decided
		a.conclude(balance.Canceled, nil)
		return a.chooseFirst()
	case t == nil:
		return proxy.NoTarget(a.upstream.Name)
	}
	a.exchange.BeginAttempt(t.Ending())
	of, _ := t.Use().(*snapshot.Target) // as balanceConfig of package snapshot says
	if a.target, err = a.affinity.targetOf(a.pools, of); err == nil && a.trip.resumed && a.target.pool == nil {
		err = proxy.Unreachable(errNoHTTP1)
	}
	return err
}

// chooseFirst chooses the first target that does not drain, without the upstream's Balance.
func (a *Attempt) chooseFirst() (err error) {
	i := slices.IndexFunc(a.upstream.Targets, func(t *snapshot.Target) bool { return !t.Drain })
	if i < 0 {
		return proxy.NoTarget(a.upstream.Name)
	}
	t := a.upstream.Targets[i]
	if lone := t.Lone; lone != nil {
		if !lone.Begin() {
			return a.chooseSince(lone.Next())
		}
		a.lone = lone
		a.exchange.BeginAttempt(lone.Ending())
	}
	if a.target, err = a.affinity.targetOf(a.pools, t); err != nil {
		a.endLone()
	}
	return err
}

// chooseSince begins a request that was decided while the upstream had one target, which it may not go to any more. next is what
// chooses between the targets since, or nil.
func (a *Attempt) chooseSince(next *balance.Upstream) error {
	if next == nil || next.Dropped() {
		return proxy.NoTarget(a.upstream.Name)
	}
	since := *a.upstream
	since.Balance = next
	a.upstream = &since
	return a.begin()
}

// endLone ends the request to the only target of an upstream, if it is one.
func (a *Attempt) endLone() {
	if a.lone != nil {
		a.lone.End()
		a.lone = nil
		a.exchange.BeginAttempt(nil)
	}
}

// conclude ends the request to the upstream's Balance, and the try that runs with the result. err is the error of the try, or nil.
func (a *Attempt) conclude(r balance.Result, err error) {
	a.endLone()
	if !a.balanced {
		return
	}
	a.balanced = false
	now := a.now()
	a.endTry(now, r, err)
	a.balance.Finish(now)
}

// endTry ends the try that runs, if there is one.
func (a *Attempt) endTry(now time.Duration, r balance.Result, err error) {
	t := a.balance.Target()
	if t == nil {
		return
	}
	a.noteCaller(r)
	a.balance.End(now, r)
	if a.exchange.EndAttempt(t, r, err, a.began, now) {
		a.exchange.NoteUntried(&a.balance)
	}
}

// noteCaller says whose request it is before a result that may count against the target.
func (a *Attempt) noteCaller(r balance.Result) {
	if r.Failed() {
		a.balance.Caller = a.exchange.CallerHash()
	}
}

// hasOthers reports whether the request may be sent to several targets.
func (a *Attempt) hasOthers() bool { return a.balanced && a.upstream.Retries() }

// keepsBody reports whether the body is kept while it is sent over HTTP/1.1, because the request may be sent again.
func (a *Attempt) keepsBody() bool {
	return a.hasOthers() && a.exchange.Length() <= upstream.MaxReplay && a.mayRepeatAny()
}

// mayRepeatAny reports whether sending the request again does no harm, even if the target has processed it.
func (a *Attempt) mayRepeatAny() bool {
	method := a.exchange.Method
	if balance.Idempotent(method) {
		return true
	}
	return a.upstream.IdempotencyKey && (method == "POST" || method == "PATCH") && a.hasField("idempotency-key")
}

// hasField reports whether the request has a field.
func (a *Attempt) hasField(name string) bool {
	_, n := proxy.HeaderValue(a.Request.Head.Fields(), a.Request.Text, name)
	return n > 0
}

// resultOf returns how a try has ended with err.
func (a *Attempt) resultOf(err error) balance.Result {
	switch {
	case err == nil && a.answered:
		return balance.OK
	case err == nil:
		return balance.Canceled
	case errors.Is(err, errFailing):
		return a.failing
	case a.timedOut:
		return balance.Timeout
	case a.Lost(), upstream.IsLocal(err):
		return balance.Canceled
	case a.refused():
		return balance.Unusable
	case errors.Is(err, errUnasked):
		return balance.Reset
	}
	switch r := upstream.ReasonOf(err); r {
	case accesslog.AddressNotAllowed:
		return balance.NotAllowed
	case accesslog.NoFreeConnection, accesslog.NoDescriptors:
		return balance.Canceled
	case accesslog.MalformedResponse, accesslog.ResponseTooLarge:
		return balance.Unusable
	case accesslog.ResponseTimeout:
		if !a.unreached {
			return balance.Timeout
		}
	case accesslog.NoReason:
		if !a.unreached || fault.CodeOf(err) != fault.UpstreamUnreachable {
			return balance.Canceled
		}
	}
	if a.unreached {
		return balance.Connect
	}
	return balance.Reset
}

// refused reports whether the target has certainly not processed the request, as when it closes a connection over HTTP/2 in
// order. This says nothing against the target.
func (a *Attempt) refused() bool { return a.multiplexed && a.open && a.call.Safe() }

// mayMove reports whether the request may be sent to another target after a try that has ended with r (section 4). It then
// counts as a retry.
func (a *Attempt) mayMove(r balance.Result) bool {
	switch {
	case a.answered:
		return false
	case a.refused():
	case r == balance.OK, r == balance.Canceled:
		return false
	case a.unreached: // no connection was made
	case a.upgrades() || a.binds || a.bound:
		return false
	case !a.upstream.Balance.RetriesOn(r) || !a.mayRepeatAny():
		return false
	}
	return a.failing == r || a.balance.Retry(a.now())
}

// move ends a try that failed with err, and prepares one at another target.
func (a *Attempt) move(c Client, err error) error {
	if a.open {
		if err := c.Again(err); err != nil {
			return err
		}
	}
	now := a.now()
	a.endTry(now, a.resultOf(err), err)
	if a.call != nil {
		a.call.Close()
		a.call.Reset()
	}
	a.discard()
	a.trip.again()
	a.open, a.written, a.unreached, a.failing, a.tries, a.elsewhere, a.waited = false, false, false, balance.OK, 0, true, true
	a.bound = false
	if err := a.choose(now); err != nil {
		return err
	}
	a.Hop.Attempt = a.balance.Count()
	a.Hop.GRPCTimeout = a.exchange.GRPCTimeout()
	return nil
}

// to returns what takes the response: the client, or what looks at the response before it.
func (a *Attempt) to(client message.Receiver) message.Receiver {
	if !a.balanced {
		return client
	}
	a.receiver = receiver{client, a}
	return &a.receiver
}

// receiver looks at the head of a response before the client gets it.
type receiver struct {
	message.Receiver
	attempt *Attempt
}

// TakeInterim implements message.Receiver.
func (r *receiver) TakeInterim(head []byte, resp *http1.Response) error {
	r.attempt.answered = r.attempt.answered || resp.Status != http1.StatusContinue
	return r.Receiver.TakeInterim(head, resp)
}

// TakeHead implements message.Receiver. Its error is errFailing if the request goes to another target. That is so only if the
// whole request was sent at once.
func (r *receiver) TakeHead(head []byte, resp *http1.Response, body http1.Framing) error {
	a := r.attempt
	result := resultOfHead(head, resp)
	if result.Failed() && a.hasOthers() && a.sentAtOnce() && a.mayMove(result) {
		a.failing = result
		return errFailing
	}
	a.answered = true
	a.trip.KeepNothing()
	a.noteCaller(result)
	a.balance.Answer(a.exchange.Arrived(), result)
	a.exchange.AnswerAttempt(result)
	return r.Receiver.TakeHead(head, resp, body)
}

// sentAtOnce reports whether the whole request was sent by the time that this was begun.
func (a *Attempt) sentAtOnce() bool {
	return a.whole && (!a.multiplexed || a.first == len(a.Part) && a.End)
}

// resultOfHead returns what the head of a response says about its target.
func resultOfHead(head []byte, r *http1.Response) balance.Result {
	if result := resultOfStatus(r.Status); result.Failed() {
		return result
	}
	if value, n := proxy.HeaderValue(r.Fields(), head, "grpc-status"); n == 1 && value == grpcUnavailable {
		return balance.GRPCUnavailable
	}
	return balance.OK
}

// grpcUnavailable is the grpc-status of a service that is not available.
const grpcUnavailable = "14"

func resultOfStatus(status int) balance.Result {
	switch status {
	case http1.StatusBadGateway:
		return balance.Status502
	case http1.StatusServiceUnavailable:
		return balance.Status503
	case http1.StatusGatewayTimeout:
		return balance.Status504
	}
	return balance.OK
}
