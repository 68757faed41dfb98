package control

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/webhook/fanout"
)

// The bounds for each account (docs/limits.md).
const (
	MaxAccountKeys          = 10_000_000 // in any state
	MaxAccountLiveKeys      = 2_000_000  // not revoked
	MaxAccountOwners        = 2_000_000  // in any state; the plans are plan.MaxPlans
	MaxAccountQuotas        = 2_000_000  // of which the store keeps windows
	MaxAccountResponses     = 100_000    // to calls with an Idempotency-Key
	MaxAccountResponseBytes = 256 << 20
	MaxAccountTargets       = gateway.MaxAccountTargets
	MaxAccountDenials       = 200_000  // of its issuers, each of which has issuer.MaxDenials at most
	MaxAccountRevisionBytes = 1 << 30  // of revisions as stored; beyond it old revisions are removed
	MaxAccountConfiguration = 64 << 20 // bytes of what every node has in memory, see AccountCounts
	MaxAccountCheckBytes    = 64 << 20 // of the checks of requests against documents, see gateway.Checks
)

// AccountBounds are bounds for each account; 0 means the constant of the same name.
type AccountBounds struct {
	Keys, LiveKeys, Owners, Plans, Targets, Responses, ResponseBytes, RevisionBytes, Denials int

	IssuerDenials int // 0 means issuer.MaxDenials

	ConfigurationBytes int64 // 0 means MaxAccountConfiguration

	CheckBytes int64 // 0 means MaxAccountCheckBytes
}

func (b *AccountBounds) configurationBytes() int64 {
	return cmp.Or(b.ConfigurationBytes, MaxAccountConfiguration)
}

func (b *AccountBounds) revisionBytes() int64 {
	return int64(cmp.Or(b.RevisionBytes, MaxAccountRevisionBytes))
}

// trimWait is the time after which there may be room for a stored response or a revision again:
// maintenance removes old ones at least this often.
const trimWait = DefaultTrimPeriod

// eventsWait is the time after which there may be room for an event again.
const eventsWait = 5 * time.Second

// roomForKey checks that the actor's account may have the key k in addition to its keys. Otherwise the error is
// fault.Conflict.
func (s *Service) roomForKey(ctx context.Context, w *work, k *apikey.Key) error {
	return s.roomForKeys(ctx, w, 1, keyBytes(k))
}

// roomForKeys checks that the actor's account may have n keys, at least one, with so many keyBytes in addition to its keys.
// Otherwise the error is fault.Conflict.
func (s *Service) roomForKeys(ctx context.Context, w *work, n, bytes int64) error {
	most := AccountCounts{
		Keys: int64(cmp.Or(s.cfg.Bounds.Keys, MaxAccountKeys)), LiveKeys: int64(cmp.Or(s.cfg.Bounds.LiveKeys, MaxAccountLiveKeys)),
	}
	room, err := w.AccountRoom(ctx, w.actor.Account.ID, AccountCounts{
		Keys: most.Keys - n + 1, LiveKeys: most.LiveKeys - n + 1, KeyBytes: s.cfg.Bounds.configurationBytes() - bytes + 1,
	})
	if err != nil {
		return err
	}
	if bytes > 0 && !room.Configuration {
		counts, err := w.AccountCounts(ctx, w.actor.Account.ID)
		if err != nil {
			return err
		}
		counts.KeyBytes += bytes
		if err := s.cfg.Bounds.checkConfiguration(&counts); err != nil {
			return err
		}
	}
	if n > 1 && !(room.LiveKeys && room.Keys) {
		return fault.New(fault.Conflict, "the account may have %d keys, the revoked ones included, and %d that are not revoked, and there is no room for %d more: revoke keys that are no longer needed first, or import fewer", most.Keys, most.LiveKeys, n)
	}
	if !room.LiveKeys {
		return fault.New(fault.Conflict, "the account has %d keys that are not revoked, which is the most that it may have: revoke keys that are no longer needed first", most.LiveKeys)
	}
	if !room.Keys {
		return fault.New(fault.Conflict, "the account has %d keys, the revoked ones included, which is the most that it may have: create further keys in another account", most.Keys)
	}
	return nil
}

// roomForOwner checks that the actor's account may have one more owner. Otherwise the error is fault.Conflict.
func (w *work) roomForOwner(ctx context.Context) error { return w.roomForOwners(ctx, 1) }

// roomForOwners does the same for n more owners, at least one.
func (w *work) roomForOwners(ctx context.Context, n int) error {
	most := int64(cmp.Or(w.bounds.Owners, MaxAccountOwners))
	room, err := w.AccountRoom(ctx, w.actor.Account.ID, AccountCounts{Owners: most - int64(n) + 1})
	if err != nil {
		return err
	}
	if !room.Owners && n > 1 {
		return fault.New(fault.Conflict, "the account may have %d owners, and there is no room for %d more: delete owners that are no longer needed first, or import fewer keys", most, n)
	}
	if !room.Owners {
		return fault.New(fault.Conflict, "the account has %d owners, which is the most that it may have: delete owners that are no longer needed first", most)
	}
	return w.mayGrow(ctx)
}

// roomForPlan checks that the actor's account may have one more plan. Otherwise the error is fault.Conflict.
func (w *work) roomForPlan(ctx context.Context) error {
	most := int64(cmp.Or(w.bounds.Plans, plan.MaxPlans))
	room, err := w.AccountRoom(ctx, w.actor.Account.ID, AccountCounts{Plans: most})
	if err != nil {
		return err
	}
	if !room.Plans {
		return fault.New(fault.Conflict, "the account has %d plans, which is the most that it may have: delete plans that are no longer needed first", most)
	}
	return w.mayGrow(ctx)
}

// roomForUpstreams checks that g may have upstreams of their size, and the actor's account the targets that g has in addition
// to those of before, which may be nil. Otherwise the error is fault.Conflict.
func (w *work) roomForUpstreams(ctx context.Context, before, g *gateway.Gateway) error {
	return roomForUpstreams(ctx, w, w.bounds, before, g)
}

func roomForUpstreams(ctx context.Context, tx AccountReader, bounds *AccountBounds, before, g *gateway.Gateway) error {
	if err := g.CheckUpstreamBytes(before); err != nil {
		return asConflict(err)
	}
	more := int64(g.CountTargets())
	if before != nil {
		more -= int64(before.CountTargets())
	}
	if more <= 0 {
		return nil
	}
	most := int64(cmp.Or(bounds.Targets, MaxAccountTargets))
	room, err := tx.AccountRoom(ctx, g.AccountID, AccountCounts{Targets: most - more + 1})
	if err != nil || room.Targets {
		return err
	}
	return fault.New(fault.Conflict, "the upstreams of all gateways of the account would have more than %d targets, which is the most that it may have: remove targets that are not used", most)
}

// keyBytes is what a key counts for AccountCounts.KeyBytes.
func keyBytes(k *apikey.Key) int64 {
	n := 0
	for i, scope := range k.Scope {
		if n += len(scope.Resource); i > 0 {
			n += len(scope.String()) - len(scope.Resource) + 1
		}
	}
	return int64(n + k.Addresses.Bytes())
}

// roomForResponse checks that one more response may be stored for the calling account. Otherwise the error is
// fault.RateLimitExceeded.
func (w *work) roomForResponse(ctx context.Context) error {
	most, mostBytes := w.bounds.responses()
	room, err := w.AccountRoom(ctx, w.actor.Account.ID, AccountCounts{Responses: most, ResponseBytes: mostBytes})
	if err != nil || room.Responses && room.ResponseBytes {
		return err
	}
	return w.fullOfResponses(most)
}

// responses returns how many responses, and bytes of them, may be stored for an account.
func (b *AccountBounds) responses() (most, mostBytes int64) {
	return int64(cmp.Or(b.Responses, MaxAccountResponses)), int64(cmp.Or(b.ResponseBytes, MaxAccountResponseBytes))
}

func (w *work) fullOfResponses(most int64) error {
	return fullAccount(w.now, trimWait, most,
		"too many responses to calls with an Idempotency-Key are kept for this account: each is kept for 24 hours, at most %d of them; retry later, or without the header", most)
}

// roomForEvent checks that a call of the account may raise another event. Otherwise the error is
// fault.RateLimitExceeded. What ends a key is never refused.
func (s *Service) roomForEvent(actor *Actor) error {
	if s.cfg.EventsFull == nil || !s.cfg.EventsFull(actor.Account.ID) {
		return nil
	}
	return fullAccount(s.now(), eventsWait, fanout.MaxWaiting,
		"the deliveries of this account's events are written more slowly than it raises events, and too many events wait: retry later, or subscribe fewer webhook endpoints to them")
}

// roomForRevision checks that one more revision may be stored for the account, and its event be raised. Otherwise
// the error is fault.RateLimitExceeded. An account may have twice as many bytes of revisions as are kept, because
// maintenance removes them only once a minute.
func (s *Service) roomForRevision(ctx context.Context, tx AccountReader, actor *Actor) error {
	if err := s.roomForEvent(actor); err != nil {
		return err
	}
	most := 2 * s.cfg.Bounds.revisionBytes()
	room, err := tx.AccountRoom(ctx, actor.Account.ID, AccountCounts{RevisionBytes: most})
	if err != nil || room.RevisionBytes {
		return err
	}
	return fullAccount(s.now(), trimWait, most,
		"the revisions of this account's gateways take more than %s: old ones are removed once a minute, so push again then; if that does not help, the newest ones alone take as much: delete gateways that are not used, or push smaller documents", inMiB(most))
}

// mayGrow is called by an operation before it makes the configuration of the actor's account larger. At the end
// of the transaction, an account that has grown beyond its bound is fault.Conflict. An account that was beyond
// the bound already keeps what it has.
func (w *work) mayGrow(ctx context.Context) error {
	if w.sized {
		return nil
	}
	w.sized = true
	return w.NoteConfiguration(ctx, w.actor.Account.ID)
}

// checkGrowth checks what mayGrow announced.
func (w *work) checkGrowth(ctx context.Context) error {
	if !w.sized {
		return nil
	}
	fits, err := w.ConfigurationFits(ctx, w.actor.Account.ID, w.bounds.configurationBytes())
	if err != nil || fits {
		return err
	}
	n, err := w.AccountCounts(ctx, w.actor.Account.ID)
	if err != nil {
		return err
	}
	return w.bounds.checkConfiguration(&n)
}

// checkConfiguration checks the size of an account's configuration.
func (b *AccountBounds) checkConfiguration(n *AccountCounts) error {
	most := b.configurationBytes()
	if n.ConfigurationBytes() <= most {
		return nil
	}
	return fault.New(fault.Conflict, "the configuration of the account would take %s, and may take %s (--account-config-max-bytes). It consists of the settings of gateways, such as certificates and cors (%s), routes with what they do (%s), scopes and address lists of keys that are not revoked (%s), owners (%s), plans (%s), and webhook endpoints (%s): remove what is not needed, or ask the operator for more",
		sizeText(n.ConfigurationBytes()), sizeText(most), sizeText(n.GatewayBytes), sizeText(n.RouteBytes), sizeText(n.KeyBytes), sizeText(n.OwnerBytes), sizeText(n.PlanBytes), sizeText(n.WebhookBytes))
}

// roomForRoutes checks that the routes of the account may take so many more bytes.
func (s *Service) roomForRoutes(ctx context.Context, tx AccountReader, actor *Actor, more int64) error {
	if more <= 0 {
		return nil
	}
	room, err := tx.AccountRoom(ctx, actor.Account.ID, AccountCounts{RouteBytes: s.cfg.Bounds.configurationBytes() - more + 1})
	if err != nil || room.Configuration {
		return err
	}
	n, err := tx.AccountCounts(ctx, actor.Account.ID)
	if err != nil {
		return err
	}
	n.RouteBytes += more
	return s.cfg.Bounds.checkConfiguration(&n)
}

// sizeText returns a size in the largest unit in which it is at least 1.
func sizeText(bytes int64) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	default:
		return fmt.Sprintf("%d B", bytes)
	}
}

func inMiB(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// fullAccount returns the refusal of a call that would store more than an account may have. wait is
// the time after which something may have been removed.
func fullAccount(now time.Time, wait time.Duration, most int64, format string, args ...any) error {
	refusal := fault.New(fault.RateLimitExceeded, format, args...)
	refusal.Limit = &fault.Limit{Limit: most, ResetAt: now.Add(wait + time.Second - 1).Unix(), Scope: ratelimit.AccountScope.String()}
	return refusal
}
