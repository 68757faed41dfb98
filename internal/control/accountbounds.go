package control

import (
	"cmp"
	"context"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The bounds for each account (docs/limits.md).
const (
	MaxAccountKeys          = 10_000_000 // in any state
	MaxAccountLiveKeys      = 2_000_000  // not revoked
	MaxAccountResponses     = 100_000    // to calls with an Idempotency-Key
	MaxAccountResponseBytes = 256 << 20
)

// AccountBounds are bounds for each account; 0 means the constant of the same name.
type AccountBounds struct {
	Keys, LiveKeys, Responses, ResponseBytes int
}

// responseWait is the time after which a place for a stored response may be free: maintenance
// removes old ones at least this often.
const responseWait = DefaultTrimPeriod

// roomForKey checks that the caller's account may have one more key. Otherwise the error is
// fault.Conflict.
func (s *Service) roomForKey(ctx context.Context, w *work) error {
	n, err := w.AccountCounts(ctx, w.caller.Account.ID)
	if err != nil {
		return err
	}
	if most := cmp.Or(s.cfg.Bounds.LiveKeys, MaxAccountLiveKeys); n.LiveKeys >= int64(most) {
		return fault.New(fault.Conflict, "the account has %d keys that are not revoked, which is the most that it may have: revoke keys that are no longer needed first", most)
	}
	if most := cmp.Or(s.cfg.Bounds.Keys, MaxAccountKeys); n.Keys >= int64(most) {
		return fault.New(fault.Conflict, "the account has %d keys, the revoked ones included, which is the most that it may have: create further keys in another account", most)
	}
	return nil
}

// roomForResponse checks that one more response, of a number of bytes, may be stored for the
// calling account. Otherwise the error is fault.RateLimitExceeded.
func (w *work) roomForResponse(ctx context.Context, bytes int) error {
	n, err := w.AccountCounts(ctx, w.caller.Account.ID)
	if err != nil {
		return err
	}
	most := int64(cmp.Or(w.bounds.Responses, MaxAccountResponses))
	if n.Responses < most && n.ResponseBytes+int64(bytes) <= int64(cmp.Or(w.bounds.ResponseBytes, MaxAccountResponseBytes)) {
		return nil
	}
	refusal := fault.New(fault.RateLimitExceeded,
		"too many responses to calls with an Idempotency-Key are kept for this account: each is kept for 24 hours, at most %d of them; retry later, or without the header", most)
	refusal.Limit = &fault.Limit{Limit: most, ResetAt: w.now.Add(responseWait + time.Second - 1).Unix(), Scope: ratelimit.AccountScope.String()}
	return refusal
}
