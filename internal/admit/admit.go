package admit

import (
	"context"

	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Config is what an Admitter is made of. Every field is required.
type Config struct {
	Live   *snapshot.Live
	Ledger *ratelimit.Ledger
	// Now reads both clocks; the same function as snapshot.Config.Now.
	Now func() ratelimit.Instant
}

// Admitter decides requests. It is safe for concurrent use.
type Admitter struct {
	cfg Config
}

// New returns an Admitter over cfg.
func New(cfg Config) (*Admitter, error) { panic("x") }

// Decide fills v with the decision on req, whatever v held before.
func (a *Admitter) Decide(req *Request, v *Verdict) { panic("x") }

// Wait returns once the daily cap that v names can tell, after which the
// request must be decided again. It returns ctx's error, or an error with the code
// fault.Unavailable if the store cannot be reached.
func (a *Admitter) Wait(ctx context.Context, v *Verdict) error { panic("x") }
