package proxy

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/upstream"
)

// Decider decides about requests; an *admit.Admitter is one.
type Decider interface {
	Decide(req *admit.Request, v *admit.Verdict)
	Wait(ctx context.Context, v *admit.Verdict) error
}

// Tracer makes requests part of traces (W3C Trace Context).
type Tracer interface {
	// Begin sets the trace of a record whose Request is set. traceparent is the
	// caller's field, empty without one.
	Begin(r *accesslog.Record, traceparent []byte)
	// Append appends the traceparent for the upstream. It is called after Begin.
	Append(dst []byte, r *accesslog.Record, traceparent []byte) []byte
}

// Config is the configuration that all drivers of a data plane share.
type Config struct {
	// Admit decides about requests. Required.
	Admit Decider
	// Pools are the connections to upstreams. Required.
	Pools *upstream.Pools
	// Via is the pseudonym of this instance in the field Via. A request that has
	// passed through it before is refused, so it must differ between instances and be
	// the same in all drivers of one. "" makes a random one.
	Via string
	// NewRequestID makes the 16 bytes of a request's identifier from the time in
	// milliseconds since 1970. Nil makes UUIDv7s.
	NewRequestID func(ms int64) [16]byte
	// Shard returns the shard for the access records of a new connection. Nil keeps no
	// records.
	Shard func() *accesslog.Shard
	// Mono reads the monotonic clock of the Decider's verdicts, in nanoseconds. Nil
	// leaves durations out of records.
	Mono func() int64
	// Trust knows the addresses of trusted proxies in X-Forwarded-For when the peer is
	// one. Nil takes the last address for the caller's.
	Trust *clientip.Trust
	// Tracer sees every request and writes traceparent for the upstream. Nil lets the
	// caller's pass.
	Tracer Tracer
	// Log receives failures of upstreams, and panics. No key, header or query is ever
	// logged. Nil discards.
	Log *slog.Logger
}

// SetDefaults fills in what is optional. It fails if something required is missing.
func (c *Config) SetDefaults() error {
	if c.Admit == nil || c.Pools == nil {
		return errors.New("proxy: Admit and Pools are required")
	}
	if c.Via == "" {
		c.Via = "keygate-" + strconv.FormatUint(rand.Uint64()|1<<63, 36)
	}
	if c.NewRequestID == nil {
		c.NewRequestID = id.NewFastAt
	}
	if c.Mono == nil {
		c.Mono = func() int64 { return 0 }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// NewShard returns the shard for a new connection, nil if no records are kept.
func (c *Config) NewShard() *accesslog.Shard {
	if c.Shard == nil {
		return nil
	}
	return c.Shard()
}
