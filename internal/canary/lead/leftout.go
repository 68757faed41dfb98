package lead

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/traffic"
)

const (
	// listPeriod is the time between two looks for canaries that have begun.
	listPeriod = time.Second
	// listsAtOnce is for how many canaries a look decides whom they leave out.
	listsAtOnce = 10
	// listTries is how often that fails before a canary leaves out nobody.
	listTries  = 30
	keysAtOnce = 2_000
)

// lists is what the Leader knows about canaries for which it has not yet decided whom they leave out.
type lists struct {
	after  string         // the canary of the last turn
	failed map[string]int // how often it failed, by canary
	told   time.Time
}

// LeaveOut decides whom canaries that have begun leave out, if this process leads. Calls of it must not overlap.
func (l *Leader) LeaveOut(ctx context.Context) error {
	lead := l.current()
	if lead == (canary.Lead{}) {
		return nil
	}
	list, err := l.cfg.Store.UndecidedCanaries(ctx, l.lists.after, listsAtOnce)
	if err != nil {
		return fmt.Errorf("find canaries that have begun: %w", err)
	}
	if l.lists.after = ""; len(list) == listsAtOnce {
		l.lists.after = list[len(list)-1].ID
	} else if len(list) == 0 {
		clear(l.lists.failed)
	}
	var errs []error
	for i := range list {
		errs = append(errs, l.leaveOut(ctx, lead, &list[i]))
	}
	return errors.Join(errs...)
}

func (l *Leader) leaveOut(ctx context.Context, lead canary.Lead, c *canary.Canary) error {
	callers, err := l.badCallers(ctx, c)
	if err != nil {
		l.lists.failed[c.ID]++
		if err = fmt.Errorf("find whom canary %s leaves out: %w", c.ID, err); l.lists.failed[c.ID] < listTries || ctx.Err() != nil {
			return err
		}
		l.cfg.Log.Warn("a canary leaves out nobody", "canary", c.ID, "error", err)
	}
	delete(l.lists.failed, c.ID)
	if err := unlessLost(l.cfg.Store.LeaveOutCallers(ctx, lead, c.ID, canary.EncodeCallers(callers))); err != nil {
		return fmt.Errorf("store whom canary %s leaves out: %w", c.ID, err)
	}
	return nil
}

// badCallers returns the callers whose share of bad requests in the hour before was above what the canary allows. If they are more
// than canary.MaxLeftOut, it returns those with the most bad requests. The minute in which the canary began is not part of that hour:
// reports do not say which of its requests the canary had already, and those say nothing about the caller. Callers without a key are
// never left out.
func (l *Leader) badCallers(ctx context.Context, c *canary.Canary) ([]uint64, error) {
	cfg := c.Plan.Config()
	if !cfg.Errors {
		return nil, nil
	}
	q := traffic.KeysQuery{AccountID: c.AccountID, Routes: map[[16]byte]struct{}{}, From: c.Plan.Before.Add(-canary.LeftOutFor), Until: c.Plan.Before}
	q.Gateway, _ = id.Parse(id.Gateway, c.GatewayID)
	for _, routeID := range c.Plan.Routes {
		if u, ok := id.Parse(id.Route, routeID); ok {
			q.Routes[u] = struct{}{}
		}
	}
	keys, err := traffic.KeysOf(ctx, l.cfg.Store, &q)
	if err != nil {
		return nil, err
	}
	if keys, err = l.byBucket(ctx, c.AccountID, keys); err != nil {
		return nil, err
	}
	type one struct {
		principal [16]byte
		bad       int64
	}
	var bad []one
	for principal, n := range keys {
		if cfg.LeavesOut(uint64(max(0, n.Requests)), uint64(max(0, n.Bad))) {
			bad = append(bad, one{principal, n.Bad})
		}
	}
	slices.SortFunc(bad, func(a, b one) int {
		return cmp.Or(cmp.Compare(b.bad, a.bad), slices.Compare(a.principal[:], b.principal[:]))
	})
	bad = bad[:min(len(bad), canary.MaxLeftOut)]
	callers := make([]uint64, len(bad))
	for i := range bad {
		callers[i] = balance.HashValue(bad[i].principal[:])
	}
	return callers, nil
}

// byBucket adds up the keys of a rotation, which are one caller (snapshot.Caller.PrincipalHash).
func (l *Leader) byBucket(ctx context.Context, accountID string, keys map[[16]byte]traffic.KeyCounts) (map[[16]byte]traffic.KeyCounts, error) {
	keyIDs := make([]string, 0, len(keys))
	for u := range keys {
		keyIDs = append(keyIDs, id.Format(id.Key, u))
	}
	for some := range slices.Chunk(keyIDs, keysAtOnce) {
		shared, err := l.cfg.Store.SharedBuckets(ctx, accountID, some)
		if err != nil {
			return nil, fmt.Errorf("read which keys are one caller: %w", err)
		}
		for keyID, bucketID := range shared {
			u, _ := id.Parse(id.Key, keyID)
			bucket, ok := id.Parse(id.Key, bucketID)
			if !ok || bucket == u {
				continue
			}
			sum, n := keys[bucket], keys[u]
			sum.Requests += n.Requests
			sum.Bad += n.Bad
			keys[bucket] = sum
			delete(keys, u)
		}
	}
	return keys, nil
}
