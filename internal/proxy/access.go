package proxy

import (
	"errors"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// ReviewAfter is how long an exchange runs before the sweepers review it at each tick. A shorter
// exchange is never cut. With two ticks, that is well within the bound of 1 s (contract, 3.3,
// cut_streams).
const ReviewAfter = 300 * time.Millisecond

// AccessError is the error of an admitted request that may not go on: its key, its gateway or the
// node's lease has ended. It is also the cause of a context that ends because of that.
type AccessError struct {
	// Result is what the request would get if it were decided now.
	Result accesslog.Result
}

// Error implements error.
func (e *AccessError) Error() string {
	return "the request may not go on: " + reasonOfResult(e.Result).String()
}

// Confirm makes the second look: whether the request would still be admitted, apart from limits. It
// is called directly before the first byte goes upstream, and before a retry. waited is set if time
// may have passed since the decision: then the expiry of the credential counts too. An error that it
// returns is for Withdraw. Confirm changes nothing.
func (x *Exchange) Confirm(waited bool) *AccessError {
	if v := &x.Verdict; x.cfg.Admit.Unchanged(v) && (!waited || v.Caller.Expires() == 0) {
		return nil
	}
	r := x.cfg.Admit.Review()
	a := x.Verdict.Admission(x.Method)
	if result := r.Result(&a); result != accesslog.Forwarded {
		return &AccessError{result}
	}
	return nil
}

// Confirmer is Confirm for the pools of package upstream, which know only errors.
type Confirmer struct{ Exchange *Exchange }

// Confirm implements upstream.Confirmer.
func (c Confirmer) Confirm() error {
	if denied := c.Exchange.Confirm(true); denied != nil {
		return denied
	}
	return nil
}

// Withdraw turns the verdict into a refusal with the result, and returns the refusal's error, for
// Respond. unsent is set if nothing of the request has gone upstream; otherwise bytesIn bytes of its body have.
func (x *Exchange) Withdraw(result accesslog.Result, unsent bool, bytesIn int64) error {
	if result == accesslog.Unreachable {
		return TargetGone()
	}
	r := x.cfg.Admit.Review()
	x.meter.in.Store(bytesIn)
	x.settleCosts(x.meter.in.Load(), x.meter.out.Load())
	x.meter.mu.Lock()
	defer x.meter.mu.Unlock()
	var used *ratelimit.Used
	if !unsent {
		used = x.meter.used()
	}
	x.Verdict.Withdraw(result, &r, used)
	x.reason = reasonOfResult(result)
	return x.Verdict.Fault()
}

// errTargetGone is the cause of a 502 for a request whose target was taken away before it responded.
var errTargetGone = errors.New("the target was taken away, and drain_timeout has passed")

// TargetGone returns the 502 of a request that its target may not serve any more.
func TargetGone() *fault.Error {
	return &fault.Error{Code: fault.UpstreamUnreachable, Message: "the upstream's target was taken away before it had responded", Err: errTargetGone}
}

// CutBy records that the response, which has begun, was cut off by result.
func (x *Exchange) CutBy(result accesslog.Result) { x.reason = reasonOfResult(result) }

// BegunAt returns the time of the decision by Config.Mono.
func (x *Exchange) BegunAt() int64 { return x.start.Mono }

// CutBy records that the tunnel was cut off by result.
func (d *Detached) CutBy(result accesslog.Result) {
	if d != nil {
		d.record.Reason = reasonOfResult(result)
	}
}

// reasonOfResult returns why an admitted request may not go on.
func reasonOfResult(r accesslog.Result) accesslog.Reason {
	switch r {
	case accesslog.NoGateway:
		return accesslog.GatewayGone
	case accesslog.KeyInvalid:
		return accesslog.KeyWasRevoked
	case accesslog.KeyExpired:
		return accesslog.KeyHasExpired
	case accesslog.WrongGateway, accesslog.WrongScope:
		return accesslog.KeyNotAllowed
	case accesslog.OwnerSuspended:
		return accesslog.OwnerWasSuspended
	case accesslog.AddressDenied:
		return accesslog.AddressTaken
	case accesslog.Maintenance:
		return accesslog.MaintenanceBegan
	case accesslog.Unreachable:
		return accesslog.TargetGone
	default:
		return accesslog.LeaseLost
	}
}
