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
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/validation"
)

// Decider decides whether requests are admitted. An *admit.Admitter implements it.
type Decider interface {
	Decide(req *admit.Request, v *admit.Verdict)
	Wait(ctx context.Context, v *admit.Verdict) error
	Unchanged(v *admit.Verdict) bool
	Review() admit.Review
	GiveBack(v *admit.Verdict)
	Extend(c *ratelimit.Charge, used *ratelimit.Used)
	Settle(c *ratelimit.Charge, used *ratelimit.Used)
}

// Tracer makes requests part of traces (W3C Trace Context).
type Tracer interface {
	// Begin sets the trace fields of a record whose Request is set. traceparent is the
	// value that the client sent, or empty.
	Begin(r *accesslog.Record, traceparent []byte)
	// Append appends the traceparent for the upstream. It is called after Begin.
	Append(dst []byte, r *accesslog.Record, traceparent []byte) []byte
}

// Config is the configuration that all engines of a data plane share.
type Config struct {
	// Admit decides about requests. Required.
	Admit Decider
	// Pools holds the connections to upstreams. Required.
	Pools *upstream.Pools
	// Via is the pseudonym of this instance in the Via field. A request whose Via already names it
	// is refused as a loop, so different instances must have different pseudonyms, and all engines
	// of one instance must have the same. Empty means a random pseudonym.
	Via string
	// NewRequestID returns the 16 bytes of a new request identifier for a time in
	// milliseconds since 1970. Nil means UUIDv7s.
	NewRequestID func(ms int64) [16]byte
	// Shard returns the shard for the access records of a new connection. Nil disables
	// access records.
	Shard func() *accesslog.Shard
	// Mono reads the monotonic clock that the Decider uses, in nanoseconds. Nil leaves
	// durations out of access records.
	Mono func() int64
	// Trust holds the networks of the trusted proxies, by which the client's address is
	// found in X-Forwarded-For if the peer is a trusted proxy. Nil means that the last
	// address in X-Forwarded-For is the client's.
	Trust *clientip.Trust
	// Tracer begins the trace of every request and writes traceparent for the upstream. Nil
	// forwards the client's traceparent.
	Tracer Tracer
	// SelfService serves the holders of keys. Nil refuses their requests with a 503.
	SelfService SelfService
	// Checker holds requests against the documents of their gateways. Nil means that none is.
	Checker *validation.Checker
	// Linger closes connections in stages and bounds how many. Nil means a new Linger.
	Linger *Linger
	// Log receives panics and failures of upstreams. No key, header or query is ever
	// logged. Nil discards them.
	Log *slog.Logger
}

// SetDefaults sets optional fields that are zero to their defaults. The only error is a
// missing required field.
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
	if c.Linger == nil {
		c.Linger = &Linger{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// NewShard returns the shard for a new connection, or nil if no records are kept.
func (c *Config) NewShard() *accesslog.Shard {
	if c.Shard == nil {
		return nil
	}
	return c.Shard()
}
