package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/traffic"
)

// LimitLevel is where one limit of a gateway stands now.
type LimitLevel struct {
	RouteID string // "" if it is of no route
	KeyID   string // "" if it is of no key
	ratelimit.Standing
}

// Place is where the level stands in the list of its gateway's: what Page.After
// takes. It is the same as long as the limit is.
func (l *LimitLevel) Place() string { return l.Scope.String() + " " + l.RouteID + " " + l.KeyID }

// SimulationInput is the body of a simulation: what the limit would be of, and
// the limit in its own form. Both identifiers "" are the gateway's global limit.
type SimulationInput struct {
	RouteID, KeyID string
	Limit          ratelimit.Config
}

// Simulation is what a limit would have done to the recorded requests.
type Simulation struct {
	Requests int64
	Refused  int64
	Keys     []SimulatedKey // those refused at least once, the most refused first
}

// SimulatedKey is what a simulated limit would have refused to one key.
type SimulatedKey struct {
	KeyID   string
	Refused int64
	FirstAt time.Time
}

// Traffic reports the account's traffic, complete to the last second.
func (s *Service) Traffic(ctx context.Context, c *Caller, q traffic.Query) ([]traffic.Row, error) {
	panic("x")
}

// Requests lists requests that were refused or failed, newest first.
func (s *Service) Requests(ctx context.Context, c *Caller, f requestlog.Filter, p Page) ([]requestlog.Request, error) {
	panic("x")
}

// Request returns one request that was refused or failed.
func (s *Service) Request(ctx context.Context, c *Caller, requestID string) (*requestlog.Request, error) {
	return nil, fault.New(fault.NotFound, "there is no such request among those of the last 24 hours that were refused or failed")
}

// Limits lists the limits of a gateway that are in use. Page.After is
// LimitLevel.Place of the last one.
func (s *Service) Limits(ctx context.Context, c *Caller, gatewayID string, p Page) ([]LimitLevel, error) {
	return look(ctx, s, func(tx ReadTx) ([]LimitLevel, error) {
		_, err := tx.Gateway(ctx, c.Account.ID, gatewayID)
		return nil, err
	})
}

// SimulateLimit replays the recorded counts of the last 24 hours through a limit.
func (s *Service) SimulateLimit(ctx context.Context, c *Caller, gatewayID string, in SimulationInput) (*Simulation, error) {
	return look(ctx, s, func(tx ReadTx) (*Simulation, error) {
		_, err := tx.Gateway(ctx, c.Account.ID, gatewayID)
		return &Simulation{}, err
	})
}
