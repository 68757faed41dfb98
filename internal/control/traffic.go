package control

import (
	"context"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/traffic"
)

// Sources report on the data plane. Without one of them, as in an offline command, the operations that
// need it return fault.Unavailable.
type Sources struct {
	AccessLog Syncer // flushes the access records of finished requests to the sinks
	Traffic   TrafficSource
	Requests  RequestSource
	Levels    LevelSource
}

// TrafficSource reports on counted requests.
type TrafficSource interface {
	Syncer
	Report(ctx context.Context, accountID string, q traffic.Query) ([]traffic.Row, error)
	Simulate(ctx context.Context, accountID string, w traffic.What) (*traffic.Simulated, error)
}

// RequestSource finds requests that were refused or failed.
type RequestSource interface {
	Syncer
	Requests(ctx context.Context, accountID string, f requestlog.Filter, limit int, after string) ([]requestlog.Request, error)
	Request(ctx context.Context, accountID, requestID string) (*requestlog.Request, error)
}

// LevelSource reports the current levels of limits.
type LevelSource interface {
	// Levels calls f for the global limit of a gateway, the limits of its routes, and those of
	// keys that are in use. A gateway that the data plane does not serve has none.
	Levels(gatewayID string, f func(ratelimit.Level))
}

// complete flushes the access records to source, so that what it reports is complete.
func (s *Service) complete(ctx context.Context, source Syncer) error {
	if s.cfg.Sources.AccessLog == nil || source == nil {
		return fault.New(fault.Unavailable, "this process has no data plane: send the call to the server")
	}
	if err := s.cfg.Sources.AccessLog.Sync(ctx); err != nil {
		return err
	}
	return source.Sync(ctx)
}

// Traffic reports the account's traffic, complete up to now. A query outside the recorded time is
// fault.ValidationFailed with the field since or interval.
func (s *Service) Traffic(ctx context.Context, c *Caller, q traffic.Query) ([]traffic.Row, error) {
	if err := s.complete(ctx, s.cfg.Sources.Traffic); err != nil {
		return nil, err
	}
	return s.cfg.Sources.Traffic.Report(ctx, c.Account.ID, q)
}

// Requests lists requests that were refused or failed, newest first.
func (s *Service) Requests(ctx context.Context, c *Caller, f requestlog.Filter, p Page) ([]requestlog.Request, error) {
	if err := s.complete(ctx, s.cfg.Sources.Requests); err != nil {
		return nil, err
	}
	return s.cfg.Sources.Requests.Requests(ctx, c.Account.ID, f, p.Limit, p.After)
}

// Request returns one request that was refused or failed.
func (s *Service) Request(ctx context.Context, c *Caller, requestID string) (*requestlog.Request, error) {
	if err := s.complete(ctx, s.cfg.Sources.Requests); err != nil {
		return nil, err
	}
	return s.cfg.Sources.Requests.Request(ctx, c.Account.ID, requestID)
}
