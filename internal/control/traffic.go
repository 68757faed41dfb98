package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/requestlog/writer"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/usage"
)

// Sources report on the data plane. Without one of them, as in an offline command, the operations that
// need it return fault.Unavailable.
type Sources struct {
	AccessLog Syncer // flushes the access records of finished requests to the sinks
	Traffic   TrafficSource
	Usage     usage.Source // what Traffic has counted for usage records
	Requests  RequestSource
	Levels    LevelSource
	Routes    RouteSource // without it, new keys have no warnings
}

// TrafficSource reports on counted requests.
type TrafficSource interface {
	Syncer
	Report(ctx context.Context, accountID string, q traffic.Query) ([]traffic.Row, error)
	Top(ctx context.Context, accountID string, q traffic.Query, by traffic.Order, limit int) ([]traffic.Total, error)
	Simulate(ctx context.Context, accountID string, w traffic.What) (*traffic.Simulated, error)
	SimulatePlan(ctx context.Context, accountID string, w traffic.PlanWhat) (*traffic.SimulatedPlan, error)
	Effect(ctx context.Context, accountID string, c traffic.Change) (*traffic.Effect, error)
}

// RequestSource finds requests that were refused, that failed, or have a cost or several attempts.
type RequestSource interface {
	Syncer
	Requests(ctx context.Context, accountID string, f requestlog.Filter, limit int, after string) ([]requestlog.Request, error)
	Request(ctx context.Context, accountID, requestID string) (*requestlog.Request, error)
	Follow(accountID string, f requestlog.Filter) *writer.Tail
}

// LevelSource reports the current levels of limits.
type LevelSource interface {
	// Levels calls f for the global limit of a gateway, for the limits of its routes, and for the
	// limits of keys that are in use. A gateway that the data plane does not serve has none.
	Levels(ctx context.Context, gatewayID string, f func(ratelimit.Level))
}

// RouteSource knows the routes in force.
type RouteSource interface {
	// Unrouted returns those resources at or below which the gateway, or the account if gatewayID
	// is "", certainly has no route. A resource is written as in scopes. Its work is bounded.
	Unrouted(accountID, gatewayID string, resources []string) []string
	// Unmatched returns those paths of a plan's limit that match certainly no route of the gateway: a path of a
	// route, or "/prefix/*" for all below a prefix. Its work is bounded.
	Unmatched(accountID, gatewayID string, paths []string) []string
	// Nearest returns the routes of a gateway that come nearest to a request for which it has none, the nearest
	// first, and the gateway's hostname. known is false if the account has no such gateway. looks bounds its work: in a
	// gateway of more routes it compares about so many.
	Nearest(accountID, gatewayID, method, path string, looks int) (near []gateway.NearRoute, hostname string, known bool)
}

// complete flushes the access records to source, so that what it reports to actor is complete. A store
// that accepts no writes can still be read.
func (s *Service) complete(ctx context.Context, actor *Actor, source Syncer) error {
	if err := actor.check(); err != nil {
		return err
	}
	if s.cfg.Sources.AccessLog == nil || source == nil {
		return fault.New(fault.Unavailable, "this process has no data plane: send the call to the server")
	}
	if err := s.cfg.Sources.AccessLog.Sync(ctx); err != nil {
		return err
	}
	s.sync(ctx, source)
	return ctx.Err()
}

// Traffic reports the account's traffic, complete up to now. A query outside the recorded time is
// fault.ValidationFailed with the field since or interval.
func (s *Service) Traffic(ctx context.Context, actor *Actor, q traffic.Query) ([]traffic.Row, error) {
	if err := s.complete(ctx, actor, s.cfg.Sources.Traffic); err != nil {
		return nil, err
	}
	return s.cfg.Sources.Traffic.Report(ctx, actor.Account.ID, q)
}

// TopTraffic reports the groups of q with the greatest numbers of the kind by, the greatest first. The
// errors are the same as from Traffic.
func (s *Service) TopTraffic(ctx context.Context, actor *Actor, q traffic.Query, by traffic.Order, limit int) ([]traffic.Total, error) {
	if err := s.complete(ctx, actor, s.cfg.Sources.Traffic); err != nil {
		return nil, err
	}
	return s.cfg.Sources.Traffic.Top(ctx, actor.Account.ID, q, by, limit)
}

// Requests lists requests that were refused or failed, or that have a cost or several attempts, newest first.
func (s *Service) Requests(ctx context.Context, actor *Actor, f requestlog.Filter, p Page) ([]requestlog.Request, error) {
	if err := s.complete(ctx, actor, s.cfg.Sources.Requests); err != nil {
		return nil, err
	}
	list, err := s.cfg.Sources.Requests.Requests(ctx, actor.Account.ID, f, p.Limit, p.After)
	if err != nil {
		return nil, err
	}
	return list, s.complement(ctx, actor, list, looksOfList)
}

// RequestTail follows the requests of an account that were refused or failed.
type RequestTail struct {
	*writer.Tail
	service *Service
	actor   *Actor
}

// FollowRequests returns a tail of the requests that f matches and that are written from now on. Close it
// after use.
func (s *Service) FollowRequests(actor *Actor, f requestlog.Filter) (*RequestTail, error) {
	if err := actor.check(); err != nil {
		return nil, err
	}
	if s.cfg.Sources.Requests == nil {
		return nil, fault.New(fault.Unavailable, "this process has no data plane: send the call to the server")
	}
	return &RequestTail{s.cfg.Sources.Requests.Follow(actor.Account.ID, f), s, actor}, nil
}

// Take returns the requests that have arrived since the last call, oldest first, and how many before them
// were skipped.
func (t *RequestTail) Take(ctx context.Context) (list []requestlog.Request, skipped int64, err error) {
	list, skipped = t.Tail.Take()
	return list, skipped, t.service.complement(ctx, t.actor, list, looksOfRequest)
}

// Request returns one request that was refused, that failed, or has a cost or several attempts.
func (s *Service) Request(ctx context.Context, actor *Actor, requestID string) (*requestlog.Request, error) {
	if err := s.complete(ctx, actor, s.cfg.Sources.Requests); err != nil {
		return nil, err
	}
	r, err := s.cfg.Sources.Requests.Request(ctx, actor.Account.ID, requestID)
	if fault.CodeOf(err) == fault.NotFound {
		return nil, s.whyNotKept(ctx, actor, requestID, err)
	}
	if err != nil {
		return nil, err
	}
	list := []requestlog.Request{*r}
	err = s.complement(ctx, actor, list, looksOfRequest)
	return &list[0], err
}

// whyNotKept returns the error for a request that is not in the log: missing, with what its identifier tells.
func (s *Service) whyNotKept(ctx context.Context, actor *Actor, requestID string, missing error) error {
	u, ok := id.Parse(id.Request, requestID)
	at := id.FastTime(u)
	if age := s.now().Sub(at); !ok || age > requestlog.Keep || age < -time.Minute {
		return missing
	}
	second := at.Truncate(time.Second)
	beside, err := s.cfg.Sources.Requests.Requests(ctx, actor.Account.ID, requestlog.Filter{Since: second, Until: second.Add(time.Second)}, 1, "")
	if err != nil {
		return err
	}
	left := ""
	if len(beside) > 0 && beside[0].LeftOut > 0 {
		left = fmt.Sprintf("; or it is one of the %d requests of that second that were left out, because there were very many", beside[0].LeftOut)
	}
	return fault.New(fault.NotFound, "a request with this identifier would have begun at %s, and is not in the log: the log keeps requests of this account that were refused (401, 403, 429, or 404 and 405 by the gateway), failed (5xx), had several attempts or have a cost (at most 100 of a second), and none that the service itself answered with another status, or that are malformed (400, 413, 414, 431)%s",
		at.UTC().Format(time.RFC3339), left)
}

// complement hides from requests what only the operator may see, and adds what the log does not
// have. looks is how many routes it compares in all.
func (s *Service) complement(ctx context.Context, actor *Actor, list []requestlog.Request, looks int) error {
	if !actor.Account.IsDefault() {
		for i := range list {
			list[i].Decision.Detail = ""
		}
	}
	s.explainRoutes(list, looks)
	return s.dateKeys(ctx, actor, list)
}

// How many routes are compared with requests for which a gateway has none, at most. Otherwise a list, or a stream of
// many requests a second, would compare millions.
const (
	looksOfRequest = 2_000  // with one request, or all that a stream sends together
	looksOfList    = 10_000 // with all requests of a list together
)

// explainRoutes completes the decisions that are a 404 or 405 with the routes of now, of which it compares as many as
// looks in all.
func (s *Service) explainRoutes(list []requestlog.Request, looks int) {
	var missed []*requestlog.Request
	for i := range list {
		if r := &list[i]; r.Decision.Check == "route" && s.cfg.Sources.Routes != nil {
			missed = append(missed, r)
		}
	}
	for _, r := range missed {
		s.explainRoute(r, min(looksOfRequest, looks/len(missed)))
	}
}

// explainRoute completes the decision of a 404 or 405 with the routes of now, of which it compares as many as looks.
func (s *Service) explainRoute(r *requestlog.Request, looks int) {
	d := &r.Decision
	near, hostname, known := s.cfg.Sources.Routes.Nearest(r.AccountID, r.GatewayID, r.Method, strings.TrimSuffix(r.Path, "…"), looks)
	if !known {
		return
	}
	if d.Nearest, d.ByDefault = near, r.Host != hostname; d.ByDefault {
		d.Message += fmt.Sprintf("; it is the default gateway, which the host %s chose because no gateway has that name", r.Host)
	}
	for _, route := range near {
		d.Message += fmt.Sprintf("; %s %s does not match: %s", strings.Join(route.Methods, ","), gateway.Shorten(route.Path), route.Why)
	}
	if len(near) == 0 {
		d.Message += "; no route of it comes near"
	}
}

// dateKeys adds to the messages about revoked and expired keys when that happened.
func (s *Service) dateKeys(ctx context.Context, actor *Actor, list []requestlog.Request) error {
	if !slices.ContainsFunc(list, func(r requestlog.Request) bool { return r.EndedKey() != "" }) {
		return nil
	}
	_, err := read(ctx, s, actor, func(tx ReadTx) (ended map[string]*apikey.Key, _ error) {
		ended = map[string]*apikey.Key{}
		for i := range list {
			r := &list[i]
			keyID := r.EndedKey()
			if keyID == "" {
				continue
			}
			k, known := ended[keyID]
			if !known {
				var err error
				if k, err = tx.Key(ctx, actor.Account.ID, keyID); err != nil && fault.CodeOf(err) != fault.NotFound {
					return nil, err
				}
				ended[keyID] = k
			}
			if k == nil {
				continue
			}
			at := k.ExpiresAt
			if r.Decision.Code == string(fault.KeyInvalid) {
				at = k.RevokedAt
			}
			if !at.IsZero() {
				r.Decision.Message += " at " + at.UTC().Truncate(time.Second).Format(time.RFC3339)
			}
		}
		return ended, nil
	})
	return err
}
