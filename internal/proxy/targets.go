package proxy

import (
	"strconv"
	"time"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/fault"
)

// NoTarget returns the 502 for an upstream of which every target drains.
func NoTarget(name string) *fault.Error {
	return &fault.Error{Code: fault.UpstreamUnreachable, Message: "every target of the upstream " + name + " is being drained", Err: errNoTarget}
}

// Mono returns the time by the monotonic clock, since an arbitrary start.
func (x *Exchange) Mono() time.Duration { return time.Duration(x.cfg.Mono()) }

// Clock returns Mono, for what outlives the exchange.
func (x *Exchange) Clock() func() time.Duration {
	mono := x.cfg.Mono
	return func() time.Duration { return time.Duration(mono()) }
}

// Length returns the declared length of the request's body, 0 without one, or a negative number if it is unknown.
func (x *Exchange) Length() int64 { return x.length }

// CallerHash returns a number that differs between callers.
func (x *Exchange) CallerHash() uint64 {
	hash, _ := x.Verdict.Caller.PrincipalHash(x.addr)
	return hash
}

// HashValue returns what the policy hash chooses a target by. ok is false if the request has no such value.
func (x *Exchange) HashValue() (value uint64, ok bool) { return x.hash, x.hashed }

// readHash sets what HashValue returns.
func (x *Exchange) readHash(header admit.Header) {
	x.hash, x.hashed = 0, false
	if x.Verdict.Upstream == nil {
		return
	}
	switch on := x.Verdict.Upstream.HashOn; {
	case on.Principal:
		x.hash, x.hashed = x.CallerHash(), true
	case on.Address:
		group := clientip.GroupOf(x.addr)
		x.hash, x.hashed = balance.HashValue(group[:]), x.addr.IsValid()
	case on.Header != "":
		text, n := header.HeaderValue(on.Header)
		x.hash, x.hashed = balance.HashValue([]byte(text)), n > 0 && text != ""
	}
}

// GRPCTimeout returns the grpc-timeout for another attempt of a gRPC call: what is left of it. It is "" for other requests.
func (x *Exchange) GRPCTimeout() string {
	if !x.limited {
		return ""
	}
	left := max(time.Millisecond, x.limit-time.Duration(x.cfg.Mono()-x.start.Mono))
	const most = 99_999_999 // the protocol allows 8 digits
	if ms := left.Milliseconds(); ms <= most {
		return strconv.FormatInt(ms, 10) + "m"
	}
	return strconv.FormatInt(min(most, int64(left/time.Second)), 10) + "S"
}
