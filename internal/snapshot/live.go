package snapshot

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

// Config is what a Live is made of.
type Config struct {
	// Source is the store. Required.
	Source Source
	// Ledger keeps the daily caps. Required.
	Ledger *ratelimit.Ledger
	// OpenHeader opens the sealed value of an upstream header. Required if a
	// gateway has one.
	OpenHeader func(sealed []byte) ([]byte, error)
	// GatewayDomain is the base domain of the hostnames given to gateways.
	// Empty is localhost.
	GatewayDomain string
	// DefaultGlobalLimit is the global limit of gateways that set none. Zero is
	// 1000000/s.
	DefaultGlobalLimit ratelimit.Rate
	// Now reads the clocks by which limits are decided, which the Admitter
	// must share. Required.
	Now func() ratelimit.Instant
	// PollInterval is the wait between two looks at the change log in Run.
	// Zero is 250 ms.
	PollInterval time.Duration
	// Log receives what Run cannot return. Nil discards.
	Log *slog.Logger
}

// Live is the data plane's view of the store, kept up to date. It is safe for
// concurrent use.
type Live struct {
	cfg     Config
	current atomic.Pointer[Snapshot]
}

// New returns a Live that knows nothing until Load.
func New(cfg Config) (*Live, error) { panic("x") }

// Load reads everything from the source and publishes it.
func (l *Live) Load(ctx context.Context) error { panic("x") }

// CatchUp returns once every change committed before the call is in force: it
// reads the change log after its last entry, reads the records that it names
// again, and publishes. If the log was trimmed it loads everything again.
// A failed call changes nothing that the next does not repeat.
func (l *Live) CatchUp(ctx context.Context) error { panic("x") }

// Run catches up at every PollInterval, so that what another process wrote is
// in force soon, until ctx ends. Failures are logged and tried again.
func (l *Live) Run(ctx context.Context) { panic("x") }

// Current returns what is in force now: one atomic load. It is never nil after
// New.
func (l *Live) Current() *Snapshot { return l.current.Load() }

// DrainUsed calls f for each key that authenticated a request since the last
// call, with the time of its last use. Calls must not overlap.
func (l *Live) DrainUsed(f func(keyID string, at time.Time)) { panic("x") }
