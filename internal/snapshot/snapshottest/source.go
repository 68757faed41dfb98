// Package snapshottest provides an in-memory store for tests of the data plane.
package snapshottest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Source is a snapshot.Source and a ratelimit.DailyStore in memory. The zero value is
// empty. It is safe for concurrent use.
type Source struct {
	mu       sync.Mutex
	accounts map[string]account.Account
	gateways map[string]stored
	keys     map[string]apikey.Key
	plans    map[string]plan.Plan
	owners   map[string]owner.Owner
	issuers  map[string]issuer.Issuer
	denials  map[string]issuer.Denial
	log      []snapshot.Change
	trimmed  int64
	seq      int64
	fail     error
	daily    map[dailyKey]ratelimit.DailyCount
	claims   map[claimKey]ratelimit.DailyFigures
}

type stored struct {
	gateway gateway.Gateway
	routes  []gateway.Route
}

// append appends to the change log. The caller holds the lock.
func (s *Source) append(kind snapshot.ChangeKind, recordID string) {
	s.seq++
	s.log = append(s.log, snapshot.Change{Seq: s.seq, Kind: kind, ID: recordID})
}

// PutAccount adds or replaces an account.
func (s *Source) PutAccount(a account.Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accounts == nil {
		s.accounts = map[string]account.Account{}
	}
	s.accounts[a.ID] = a
	s.append(snapshot.AccountChange, a.ID)
}

// DeleteAccount removes an account, but not yet its gateways and keys.
func (s *Source) DeleteAccount(accountID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.accounts, accountID)
	s.append(snapshot.AccountChange, accountID)
}

// PutGateway adds or replaces a gateway with its route table.
func (s *Source) PutGateway(g gateway.Gateway, routes ...gateway.Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gateways == nil {
		s.gateways = map[string]stored{}
	}
	s.gateways[g.ID] = stored{g, slices.Clone(routes)}
	s.append(snapshot.GatewayChange, g.ID)
}

// MoveDefault makes the gateway the default gateway and the former default gateway an ordinary
// gateway, in one step.
func (s *Source) MoveDefault(gatewayID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, g := range s.gateways {
		if g.gateway.Default != (id == gatewayID) {
			g.gateway.Default = id == gatewayID
			s.gateways[id] = g
			s.append(snapshot.GatewayChange, id)
		}
	}
}

// PutSettings replaces the settings of a gateway and keeps its routes.
func (s *Source) PutSettings(g gateway.Gateway) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gateways[g.ID] = stored{g, s.gateways[g.ID].routes}
	s.append(snapshot.SettingsChange, g.ID)
}

// PutRoute adds or replaces one route of a gateway.
func (s *Source) PutRoute(gatewayID string, r gateway.Route) { s.changeRoute(gatewayID, r.ID, &r) }

// DeleteRoute removes one route of a gateway.
func (s *Source) DeleteRoute(gatewayID, routeID string) { s.changeRoute(gatewayID, routeID, nil) }

func (s *Source) changeRoute(gatewayID, routeID string, r *gateway.Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gateways[gatewayID]
	g.routes = slices.Clone(g.routes)
	i := slices.IndexFunc(g.routes, func(r gateway.Route) bool { return r.ID == routeID })
	switch {
	case r == nil:
		g.routes = slices.Delete(g.routes, i, i+1)
	case i < 0:
		g.routes = append(g.routes, *r)
	default:
		g.routes[i] = *r
	}
	s.gateways[gatewayID] = g
	s.append(snapshot.RouteChange, snapshot.RouteChangeID(gatewayID, routeID))
}

// DeleteGateway removes a gateway.
func (s *Source) DeleteGateway(gatewayID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gateways, gatewayID)
	s.append(snapshot.GatewayChange, gatewayID)
}

// PutKey adds or replaces a key.
func (s *Source) PutKey(k apikey.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[string]apikey.Key{}
	}
	s.keys[k.ID] = k
	s.append(snapshot.KeyChange, k.ID)
}

// DeleteKey deletes a key's record, which real stores never do.
func (s *Source) DeleteKey(keyID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, keyID)
	s.append(snapshot.KeyChange, keyID)
}

// Trim empties the change log.
func (s *Source) Trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log, s.trimmed = nil, s.seq
}

// Fail makes every later call return err, until Fail(nil).
func (s *Source) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// lock takes the lock, unless calls must fail or ctx has ended.
func (s *Source) lock(ctx context.Context) error {
	s.mu.Lock()
	if err := s.fail; err != nil {
		s.mu.Unlock()
		return err
	}
	if err := ctx.Err(); err != nil {
		s.mu.Unlock()
		return err
	}
	return nil
}

// Accounts implements snapshot.Source.
func (s *Source) Accounts(ctx context.Context) (all []account.Account, err error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for _, a := range s.accounts {
		all = append(all, a)
	}
	return all, nil
}

// LastSeq implements snapshot.ChangeLog.
func (s *Source) LastSeq(ctx context.Context) (int64, error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return s.seq, nil
}

// Changes implements snapshot.ChangeLog.
func (s *Source) Changes(ctx context.Context, seq int64, limit int) (changes []snapshot.Change, complete bool, err error) {
	if err := s.lock(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	for _, c := range s.log {
		if c.Seq > seq && len(changes) < limit {
			changes = append(changes, c)
		}
	}
	return changes, seq >= s.trimmed, nil
}

// EachGateway implements snapshot.GatewaySource.
func (s *Source) EachGateway(ctx context.Context, f func(*gateway.Gateway, []gateway.Route) error) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	var all []stored
	for _, g := range s.gateways {
		all = append(all, g)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b stored) int { return strings.Compare(a.gateway.ID, b.gateway.ID) })
	for i := range all {
		if err := f(&all[i].gateway, slices.Clone(all[i].routes)); err != nil {
			return err
		}
	}
	return nil
}

// GatewayByID implements snapshot.GatewaySource.
func (s *Source) GatewayByID(ctx context.Context, gatewayID string) (*gateway.Gateway, []gateway.Route, error) {
	if err := s.lock(ctx); err != nil {
		return nil, nil, err
	}
	defer s.mu.Unlock()
	g, ok := s.gateways[gatewayID]
	if !ok {
		return nil, nil, fault.Missing("gateway")
	}
	return &g.gateway, slices.Clone(g.routes), nil
}

// GatewayIDs implements snapshot.GatewaySource.
func (s *Source) GatewayIDs(ctx context.Context) ([]string, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.gateways)), nil
}

// HasGateway implements snapshot.GatewaySource.
func (s *Source) HasGateway(ctx context.Context, gatewayID string) (bool, error) {
	if err := s.lock(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	_, found := s.gateways[gatewayID]
	return found, nil
}

// RouteCount implements snapshot.GatewaySource.
func (s *Source) RouteCount(ctx context.Context, gatewayID string) (int, error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return len(s.gateways[gatewayID].routes), nil
}

// GatewayDelta implements snapshot.GatewaySource.
func (s *Source) GatewayDelta(ctx context.Context, gatewayID string, routeIDs []string, after int64) (*snapshot.GatewayDelta, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	g, ok := s.gateways[gatewayID]
	if !ok {
		return nil, fault.Missing("gateway")
	}
	d := &snapshot.GatewayDelta{Gateway: &g.gateway, RouteIDs: slices.Clone(routeIDs), Whole: after < s.trimmed}
	for _, c := range s.log {
		switch of, routeID := c.Gateway(); {
		case c.Seq <= after || of != gatewayID:
		case c.Kind == snapshot.GatewayChange:
			d.Whole = true
		case routeID != "" && !slices.Contains(d.RouteIDs, routeID):
			d.RouteIDs = append(d.RouteIDs, routeID)
		}
	}
	for _, r := range g.routes {
		if slices.Contains(d.RouteIDs, r.ID) {
			d.Routes = append(d.Routes, r)
		}
	}
	return d, nil
}

// EachKey implements snapshot.KeySource.
func (s *Source) EachKey(ctx context.Context, revokedSince time.Time, f func(*apikey.Key) error) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	var all []apikey.Key
	for _, k := range s.keys {
		if k.RevokedAt.IsZero() || !k.RevokedAt.Before(revokedSince) {
			all = append(all, k)
		}
	}
	s.mu.Unlock()
	var one apikey.Key
	for _, one = range all {
		if err := f(&one); err != nil {
			return err
		}
	}
	return nil
}

// KeyByID implements snapshot.KeySource.
func (s *Source) KeyByID(ctx context.Context, keyID string) (*apikey.Key, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	k, ok := s.keys[keyID]
	if !ok {
		return nil, fault.Missing("key")
	}
	return &k, nil
}

type dailyKey struct {
	limitID, keyID string
	day            int64
}

// LoadDailyCounts implements ratelimit.DailyStore.
func (s *Source) LoadDailyCounts(ctx context.Context, node string, day int64, limitIDs ...string) (counts []ratelimit.DailyCount, err error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for k, c := range s.daily {
		if k.day == day && (len(limitIDs) == 0 || slices.Contains(limitIDs, k.limitID)) {
			own := s.claims[claimKey{k, node}]
			c.Own, c.OwnLost = own.Used, own.Lost
			counts = append(counts, c)
		}
	}
	return counts, nil
}

type claimKey struct {
	dailyKey
	node string
}

// ReserveDaily implements ratelimit.DailyStore.
func (s *Source) ReserveDaily(ctx context.Context, node string, day int64, claims []ratelimit.DailyClaim) (time.Time, error) {
	if err := s.lock(ctx); err != nil {
		return time.Time{}, err
	}
	defer s.mu.Unlock()
	if s.daily == nil {
		s.daily = make(map[dailyKey]ratelimit.DailyCount)
		s.claims = make(map[claimKey]ratelimit.DailyFigures)
	}
	for i := range claims {
		c := &claims[i]
		k := dailyKey{c.LimitID, c.KeyID, day}
		was := s.daily[k]
		total, own := c.Grant(ratelimit.DailyFigures{Used: was.Used, Lost: was.Lost}, s.claims[claimKey{k, node}])
		s.daily[k] = ratelimit.DailyCount{LimitID: c.LimitID, KeyID: c.KeyID, Day: day, Used: total.Used, Lost: total.Lost}
		s.claims[claimKey{k, node}] = own
	}
	return time.Time{}, nil
}
