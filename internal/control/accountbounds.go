package control

import (
	"cmp"
	"context"
	"fmt"
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
	MaxAccountRevisionBytes = 1 << 30 // of revisions as stored; beyond it old ones are removed
)

// AccountBounds are bounds for each account; 0 means the constant of the same name.
type AccountBounds struct {
	Keys, LiveKeys, Responses, ResponseBytes, RevisionBytes int
}

func (b *AccountBounds) revisionBytes() int64 {
	return int64(cmp.Or(b.RevisionBytes, MaxAccountRevisionBytes))
}

// trimWait is the time after which there may be room for a stored response or a revision again:
// maintenance removes old ones at least this often.
const trimWait = DefaultTrimPeriod

// roomForKey checks that the caller's account may have one more key. Otherwise the error is
// fault.Conflict.
func (s *Service) roomForKey(ctx context.Context, w *work) error {
	most := AccountCounts{Keys: int64(cmp.Or(s.cfg.Bounds.Keys, MaxAccountKeys)), LiveKeys: int64(cmp.Or(s.cfg.Bounds.LiveKeys, MaxAccountLiveKeys))}
	room, err := w.AccountRoom(ctx, w.caller.Account.ID, most)
	if err != nil {
		return err
	}
	if !room.LiveKeys {
		return fault.New(fault.Conflict, "the account has %d keys that are not revoked, which is the most that it may have: revoke keys that are no longer needed first", most.LiveKeys)
	}
	if !room.Keys {
		return fault.New(fault.Conflict, "the account has %d keys, the revoked ones included, which is the most that it may have: create further keys in another account", most.Keys)
	}
	return nil
}

// roomForResponse checks that one more response, of a number of bytes, may be stored for the
// calling account. Otherwise the error is fault.RateLimitExceeded.
func (w *work) roomForResponse(ctx context.Context, bytes int) error {
	most := int64(cmp.Or(w.bounds.Responses, MaxAccountResponses))
	mostBytes := int64(cmp.Or(w.bounds.ResponseBytes, MaxAccountResponseBytes))
	room, err := w.AccountRoom(ctx, w.caller.Account.ID, AccountCounts{Responses: most, ResponseBytes: mostBytes - int64(bytes) + 1})
	if err != nil || room.Responses && room.ResponseBytes {
		return err
	}
	return fullAccount(w.now, most,
		"too many responses to calls with an Idempotency-Key are kept for this account: each is kept for 24 hours, at most %d of them; retry later, or without the header", most)
}

// roomForRevision checks that one more revision may be stored for the account. Otherwise the error is
// fault.RateLimitExceeded. An account may have twice as many bytes of revisions as are kept, because
// maintenance removes them only once a minute.
func (s *Service) roomForRevision(ctx context.Context, tx AccountReader, c *Caller) error {
	most := 2 * s.cfg.Bounds.revisionBytes()
	room, err := tx.AccountRoom(ctx, c.Account.ID, AccountCounts{RevisionBytes: most})
	if err != nil || room.RevisionBytes {
		return err
	}
	return fullAccount(s.now(), most,
		"the revisions of this account's gateways take more than %s: old ones are removed once a minute, so push again then; if that does not help, the newest ones alone take as much: delete gateways that are not used, or push smaller documents", inMiB(most))
}

func inMiB(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// fullAccount returns the refusal of a call that would store more than an account may have, until
// maintenance has removed something.
func fullAccount(now time.Time, most int64, format string, args ...any) error {
	refusal := fault.New(fault.RateLimitExceeded, format, args...)
	refusal.Limit = &fault.Limit{Limit: most, ResetAt: now.Add(trimWait + time.Second - 1).Unix(), Scope: ratelimit.AccountScope.String()}
	return refusal
}
