package h1

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/upstream"
)

// Decider is what the engine needs of admit.Admitter.
type Decider interface {
	Decide(req *admit.Request, v *admit.Verdict)
	Wait(ctx context.Context, v *admit.Verdict) error
}

// Tracer makes requests part of traces (W3C Trace Context).
type Tracer interface {
	// Begin notes in a record, whose Request is set, which trace it is part of.
	// traceparent is the caller's field, empty without one.
	Begin(r *accesslog.Record, traceparent []byte)
	// Append appends the traceparent of the upstream, after Begin.
	Append(dst []byte, r *accesslog.Record, traceparent []byte) []byte
}

// Config is what an Engine is made of.
type Config struct {
	// Admit decides. Required.
	Admit Decider
	// Pools are the connections to upstreams. Required.
	Pools *upstream.Pools
	// Forward serves a request that was admitted for an upstream that is not
	// plain HTTP/1.1, as an http.Handler would. Required.
	Forward func(w http.ResponseWriter, r *http.Request, v *admit.Verdict, requestID string)
	// Via is the pseudonym of this instance in the field Via. A request that
	// has come through it before is refused, so it must be unlike that of any
	// other instance. "" makes a random one.
	Via string
	// NewRequestID makes the 16 bytes of a request's identifier, given the
	// milliseconds since 1970. Nil makes UUIDv7s.
	NewRequestID func(ms int64) [16]byte
	// Outcome gives a new connection the lane for the records of its requests.
	// Nil keeps none.
	Outcome func() *accesslog.Shard
	// Mono reads the monotonic clock of the Decider's verdicts, in nanoseconds.
	// Nil leaves durations out of records.
	Mono func() int64
	// Now reads the clock by which the engine ends what takes too long, once in each
	// tick, and of which the field Date is. Nil is time.Now.
	Now func() time.Time
	// Trust tells which of the addresses in X-Forwarded-For are of proxies, when
	// the peer is a trusted one. Nil takes the last for the caller.
	Trust *clientip.Trust
	// Tracer, unless nil, sees every request, and its answers replace the field
	// traceparent. Nil lets that pass as it is.
	Tracer Tracer
	// Log receives what went wrong with upstreams, and defects. It never sees a
	// key or a query. Nil discards.
	Log *slog.Logger
}

// ConnInfo is what the listener knows of a connection.
type ConnInfo struct {
	// Client is who is told to upstreams: the peer, or whom a trusted proxy
	// named by the PROXY protocol.
	Client netip.AddrPort
	// Trusted tells that the peer's X-Forwarded-* fields are believed.
	Trusted bool
	// TLS tells that the client's connection is encrypted.
	TLS bool
	// Prefix holds bytes that were received already. It is not kept.
	Prefix []byte
}

var errConfig = errors.New("h1: Admit, Pools and Forward are required")
